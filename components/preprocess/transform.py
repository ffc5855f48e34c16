"""From cells to ids and values, by what was learned from training rows. One table of ids for all fields, in this order:

    numbers       each: one id with the number as its value (log, standard, min_max), or an id a bucket with value 1; then one for
                  missing
    categories    each: one id for missing
    categories    hashed: ids that all columns share, a stable hash of column and token; or, with a vocabulary, each: one id for
                  rare and unseen tokens, then one a token, the most frequent first
    later tokens  one each, for vocabularies that grew (growing.py)

A category has value 1. A multi-valued column fills its fields with its tokens, then with its id for missing and value 0, which adds
nothing; if it has no token at all, the first of these has value 1, as any missing cell does.

The same object is saved with the dataset and with the model (transform_file.py): the next day's rows and serving use it as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.preprocess.columns import Columns
from components.preprocess.hashing import token_hashes
from components.preprocess.tokens import Tokens, tokens_of
from components.records import Batch
from components.transforms import OlderVersion

NumberEncoding = Literal["log", "bucket", "standard", "min_max"]
CategoryEncoding = Literal["hash", "vocabulary"]


@dataclass(frozen=True, kw_only=True)
class NumberField:
    """A numeric column. With buckets, x has id `first` + the number of `edges` at or below it; else its value is scaled."""

    name: str
    encoding: NumberEncoding
    first: int
    missing: int
    shift: float = 0.0
    scale: float = 1.0
    edges: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CategoryField:
    """A categorical or multi-valued column that takes `width` fields.

    Ids of tokens are `first` .. `first` + `size` - 1; hashed columns have no `vocabulary` and no id for `rare` tokens. Tokens that
    it grew by have `grown_ids`. `distinct` tokens stood in the rows that it was made for; `collision_rate` is the share of them
    that share their id with another one of this column.
    """

    name: str
    width: int
    missing: int
    first: int
    size: int
    salt: int
    rare: int | None = None
    vocabulary: tuple[str, ...] | None = None
    distinct: int = 0
    collision_rate: float = 0.0
    grown: tuple[str, ...] = ()
    grown_ids: tuple[int, ...] = ()

    @cached_property
    def known(self) -> dict[bytes, int]:
        """The id of each token of the vocabulary."""
        first = {to_bytes(token): self.first + place for place, token in enumerate(self.vocabulary or ())}
        return first | {to_bytes(token): number for token, number in zip(self.grown, self.grown_ids, strict=True)}

    def looked_up(self, tokens: pa.BinaryArray) -> NDArray[np.int64]:
        """The ids of tokens by the vocabulary."""
        # No Python of ours runs a token: this is done for every distinct token of every chunk.
        return np.fromiter(map(self.known.get, tokens.to_pylist(), repeat(self.rare)), np.int64, len(tokens))

    def hashed(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The ids of tokens by their hashes."""
        return self.first + (hashes % np.uint64(self.size)).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Transform:
    """Everything that is needed to turn a row of `columns` into ids and values.

    `rows` training rows were counted for it, 0 where the settings alone make it. `older` are those that it grew from, the first
    one first.
    """

    columns: Columns
    numbers: tuple[NumberField, ...]
    categories: tuple[CategoryField, ...]
    feature_size: int
    rows: int
    older: tuple[OlderVersion, ...] = ()

    def fits(self, columns: Columns) -> bool:
        """Whether it was fitted for these. What is ignored may differ from day to day."""
        return replace(self.columns, ignored=()) == replace(columns, ignored=())

    @property
    def field_size(self) -> int:
        return len(self.numbers) + sum(field.width for field in self.categories)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Rows, and for each column (in the order of `Columns.fields`) how many cells were missing and how many tokens unknown.

    `hashes` are those of the distinct tokens of each hashed column (collisions.py).
    """

    rows: Batch
    missing: NDArray[np.int64]
    unseen: NDArray[np.int64]
    hashes: tuple[NDArray[np.uint64], ...] = ()


def to_bytes(token: str) -> bytes:
    """A token of a saved vocabulary as it stood in the source, which need not be UTF-8 in every format."""
    return token.encode(errors="surrogateescape")


def apply(transform: Transform, batch: pa.RecordBatch) -> Applied:
    """Ids and values of raw rows (raw_rows.py); categories may be Arrow strings or binaries."""
    rows = batch.num_rows
    ids = np.empty((rows, transform.field_size), np.int64)
    values = np.ones((rows, transform.field_size), np.float32)
    numbers, categories = transform.numbers, transform.categories
    missing = np.zeros(len(numbers) + len(categories), np.int64)
    unseen = np.zeros_like(missing)
    for place, number in enumerate(numbers):
        missing[place] = _apply_number(number, batch.column(1 + place), ids[:, place], values[:, place])
    columns = batch.columns[1 + len(numbers) : 1 + len(missing)]
    tokens = [tokens_of(column) for column in columns]
    found, hashes = _ids_of(categories, tokens)
    at = len(numbers)
    for place, category in enumerate(categories):
        fields, column = slice(at, at + category.width), columns[place]
        cells = np.append(found[place], category.missing)[tokens[place].places]
        counted = len(numbers) + place
        if pa.types.is_list(column.type):
            missing[counted] = _fill_lists(category, column, cells, ids[:, fields], values[:, fields])
        else:
            ids[:, at] = cells
            missing[counted] = np.count_nonzero(cells == category.missing)
        if category.rare is not None:
            unseen[counted] = np.count_nonzero(cells == category.rare)
        at += category.width
    labels = batch.column(0).to_numpy(zero_copy_only=False).astype(np.float32)
    return Applied(rows=Batch(labels=labels, ids=ids, values=values), missing=missing, unseen=unseen, hashes=hashes)


def _apply_number(field: NumberField, column: pa.Array, ids_B: NDArray[np.int64], values_B: NDArray[np.float32]) -> int:
    numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
    missing = np.isnan(numbers)
    if field.encoding == "bucket":
        ids_B[:] = field.first + np.searchsorted(np.array(field.edges, np.float64), numbers, side="right")
    else:
        ids_B[:] = field.first
        values_B[:] = logarithm(numbers) if field.encoding == "log" else _scaled(field, numbers)
    ids_B[missing], values_B[missing] = field.missing, 1.0
    return int(missing.sum())


def logarithm(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """sign(x) ln(1 + abs(x)): keeps 0 and signs, and tames long tails."""
    found: NDArray[np.float64] = np.sign(numbers) * np.log1p(np.abs(numbers))
    return found


def _scaled(field: NumberField, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    # A later day's number may be so far out that it is infinite as float32, which no model can train on.
    largest = float(np.finfo(np.float32).max)
    with np.errstate(over="ignore"):
        return np.clip((numbers - field.shift) / field.scale, -largest, largest)


def _ids_of(
    fields: Sequence[CategoryField], tokens: Sequence[Tokens]
) -> tuple[list[NDArray[np.int64]], tuple[NDArray[np.uint64], ...]]:
    """The id of each distinct token, by column; and the hashes of those that stand in a row, of hashed columns."""
    hashed = [place for place, field in enumerate(fields) if field.rare is None]
    # All columns together, because numpy takes longer to begin than to hash the few tokens of one.
    hashes = _hashes([fields[place].salt for place in hashed], [tokens[place].distinct for place in hashed])
    by_place = dict(zip(hashed, hashes, strict=True))
    ids = [
        field.hashed(by_place[place]) if place in by_place else field.looked_up(tokens[place].distinct)
        for place, field in enumerate(fields)
    ]
    return ids, tuple(each[tokens[place].stands()] for place, each in by_place.items())


def _hashes(salts: Sequence[int], tokens: Sequence[pa.BinaryArray]) -> list[NDArray[np.uint64]]:
    if not salts:
        return []
    lengths = [len(own) for own in tokens]
    together = token_hashes(pa.concat_arrays(tokens), np.repeat(np.array(salts, np.uint64), lengths))
    return np.split(together, np.cumsum(lengths)[:-1])


def _fill_lists(
    field: CategoryField, column: pa.Array, tokens: NDArray[np.int64], ids_BF: NDArray[np.int64], values_BF: NDArray[np.float32]
) -> int:
    """The ids of all tokens of a multi-valued column into the fields of their rows; how many rows have none."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids_BF[:], values_BF[:] = field.missing, 0.0
    ids_BF[row, slot] = tokens
    values_BF[row, slot] = 1.0
    empty = lengths == 0
    values_BF[empty, 0] = 1.0
    return int(empty.sum())
