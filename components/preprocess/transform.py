"""From cells to ids and values, by what was learned from training rows. One table of ids for all fields, in this order:

    numbers       each: one id with the number as its value (log, standard, min_max), or an id a bucket with value 1; then one for
                  missing
    categories    each: one id for missing
    categories    hashed: ids that all columns share, a stable hash of column and token; or, with a vocabulary, each: one id for
                  rare and unseen tokens, then one a token, the most frequent first

A category has value 1. A multi-valued column fills its fields with its tokens, then with its id for missing and value 0, which adds
nothing; if it has no token at all, the first of these has value 1, as any missing cell does.

The same object is saved with the dataset and with the model (transform_file.py): the next day's rows and serving use it as it is.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.preprocess.columns import Columns
from components.records import Batch

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

    Ids of tokens are `first` .. `first` + `size` - 1; hashed columns have no `vocabulary` and no id for `rare` tokens. `distinct`
    tokens stood in the training rows; `collision_rate` is the share of them that share their id with another one of this column.
    """

    name: str
    width: int
    missing: int
    first: int
    size: int
    salt: int
    rare: int | None = None
    vocabulary: tuple[str, ...] | None = None
    distinct: int
    collision_rate: float = 0.0

    @cached_property
    def known(self) -> dict[bytes, int]:
        """The id of each token of the vocabulary."""
        return {to_bytes(token): self.first + place for place, token in enumerate(self.vocabulary or ())}

    def id_of(self, token: bytes) -> int:
        """The id of a token that is there."""
        if self.rare is None:
            return self.first + token_hash(self.salt, token) % self.size
        return self.known.get(token, self.rare)


@dataclass(frozen=True, kw_only=True)
class Transform:
    """Everything that is needed to turn a row of `columns` into ids and values. `rows` training rows were counted for it."""

    columns: Columns
    numbers: tuple[NumberField, ...]
    categories: tuple[CategoryField, ...]
    feature_size: int
    rows: int

    @property
    def field_size(self) -> int:
        return len(self.numbers) + sum(field.width for field in self.categories)


@dataclass(frozen=True, kw_only=True)
class Applied:
    """Rows, and for each column (in the order of `Columns.fields`) how many cells were missing and how many tokens unknown."""

    rows: Batch
    missing: NDArray[np.int64]
    unseen: NDArray[np.int64]


def to_bytes(token: str) -> bytes:
    """A token of a saved vocabulary as it stood in the source, which need not be UTF-8 in every format."""
    return token.encode(errors="surrogateescape")


def token_hash(salt: int, token: bytes) -> int:
    """64 bits, the same on every machine and day. Source of the idea: Weinberger et al. 2009, feature hashing."""
    return int.from_bytes(hashlib.blake2b(token, digest_size=8, salt=salt.to_bytes(16, "little")).digest(), "little")


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
    at = len(numbers)
    for place, category in enumerate(categories, start=len(numbers)):
        fields, column = slice(at, at + category.width), batch.column(1 + place)
        fill = _apply_list if pa.types.is_list(column.type) else _apply_category
        missing[place] = fill(category, column, ids[:, fields], values[:, fields])
        if category.rare is not None:
            unseen[place] = int((ids[:, fields] == category.rare).sum())
        at += category.width
    labels = batch.column(0).to_numpy(zero_copy_only=False).astype(np.float32)
    return Applied(rows=Batch(labels=labels, ids=ids, values=values), missing=missing, unseen=unseen)


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


def _ids_of(field: CategoryField, column: pa.Array) -> NDArray[np.int64]:
    """The id of each cell; a token is looked up once, however often it stands there."""
    encoded = column.dictionary_encode()
    tokens = encoded.dictionary.cast(pa.binary()).to_pylist()
    lookup = np.array([*map(_lookup(field), tokens), field.missing], np.int64)
    found: NDArray[np.int64] = lookup[pc.fill_null(encoded.indices, len(tokens)).to_numpy(zero_copy_only=False)]
    return found


def _lookup(field: CategoryField) -> Callable[[bytes], int]:
    # An empty cell is missing in every format; not all of their readers say null.
    return lambda token: field.id_of(token) if token else field.missing


def _apply_category(field: CategoryField, column: pa.Array, ids_BF: NDArray[np.int64], values_BF: NDArray[np.float32]) -> int:
    ids_BF[:, 0] = _ids_of(field, column)
    return int((ids_BF[:, 0] == field.missing).sum())


def _apply_list(field: CategoryField, column: pa.Array, ids_BF: NDArray[np.int64], values_BF: NDArray[np.float32]) -> int:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    row = np.repeat(np.arange(len(lengths)), lengths)
    slot = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    ids_BF[:], values_BF[:] = field.missing, 0.0
    ids_BF[row, slot] = _ids_of(field, pc.list_flatten(column))
    values_BF[row, slot] = 1.0
    empty = lengths == 0
    values_BF[empty, 0] = 1.0
    return int(empty.sum())
