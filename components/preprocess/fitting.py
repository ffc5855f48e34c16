"""What is learned from training rows: counts of tokens and numbers, which add up in any order, and the transform made of them.

Rows are counted chunk by chunk, in as many processes as there are, and the counts are merged. Whatever the order, the result is the
same to the last bit: sums are exact integers, quantiles come from the rows with the smallest keys, ties are broken by token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.columns import Columns
from components.preprocess.moments import Moments, moments_of, quantile_edges, scaling_of
from components.preprocess.transform import CategoryEncoding, CategoryField, NumberEncoding, NumberField, Transform, token_hash
from components.records import LARGEST_TABLE

# Distinct tokens of all columns together before rare ones are dropped; about 150 bytes each in a dictionary.
MOST_TOKENS = 4_000_000
# Rows whose numbers are kept for quantiles: the share of rows below an edge is then right within 0.4 % (two standard errors).
SAMPLED_ROWS = 65_536
# Distinct tokens of a hashed column up to which collisions are counted; beyond, they are worked out from an estimate.
SAMPLED_TOKENS = 65_536


@dataclass(frozen=True, kw_only=True)
class TransformConfig:
    """How columns become ids and values.

    `hash_size` ids are shared by all hashed columns. A vocabulary has the tokens that stand at least `min_count` times in training
    rows, and of these the `max_size` most frequent ones of each column (0: all). `buckets` of a number hold about as many rows.
    """

    categories: CategoryEncoding = "hash"
    hash_size: int = 200_000
    min_count: int = 4
    max_size: int = 0
    numbers: NumberEncoding = "log"
    buckets: int = 32

    def __post_init__(self) -> None:
        if self.categories not in get_args(CategoryEncoding):
            raise InvalidConfig(f"categories {self.categories!r} is none of {', '.join(get_args(CategoryEncoding))}")
        if self.numbers not in get_args(NumberEncoding):
            raise InvalidConfig(f"numbers {self.numbers!r} is none of {', '.join(get_args(NumberEncoding))}")
        for name, least in (("hash_size", 1), ("min_count", 1), ("max_size", 0), ("buckets", 2)):
            if not least <= getattr(self, name) <= LARGEST_TABLE:
                raise InvalidConfig(f"{name} {getattr(self, name)}: must be in {least}..{LARGEST_TABLE}")


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What some training rows hold. Of the parts only those are filled that the settings need.

    tokens: how often each token stands there, a column each (a vocabulary)
    hashes: the smallest hashes of tokens, sorted, a column each (hashing)
    moments: a numeric column each (standard, min_max)
    keys [S], sample [S, columns]: numbers of the rows with the smallest keys (bucket)
    """

    rows: int
    tokens: tuple[dict[bytes, int], ...] = ()
    hashes: tuple[NDArray[np.uint64], ...] = ()
    moments: tuple[Moments, ...] = ()
    keys: NDArray[np.uint64]
    sample: NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """Counts rows of `columns`, merges counts, and makes the transform of them."""

    columns: Columns
    config: TransformConfig = TransformConfig()
    most_tokens: int = MOST_TOKENS

    def count(self, batch: pa.RecordBatch, keys_B: NDArray[np.uint64]) -> Counts:
        """What these training rows (raw_rows.py) hold; `keys_B` are those of keys.py."""
        numeric = len(self.columns.numeric)
        numbers = [batch.column(1 + place).to_numpy(zero_copy_only=False) for place in range(numeric)]
        columns = [_flat(batch.column(1 + place)) for place in range(numeric, len(self.columns.fields))]
        vocabulary = self.config.categories == "vocabulary"
        scaling = self.config.numbers in ("standard", "min_max")
        keys, sample = np.empty(0, np.uint64), np.empty((0, numeric))
        if self.config.numbers == "bucket" and numeric:
            keys, sample = _smallest_keys(keys_B, np.stack(numbers, axis=1))
        return Counts(
            rows=batch.num_rows,
            tokens=tuple(map(_token_counts, columns)) if vocabulary else (),
            hashes=() if vocabulary else tuple(_token_hashes(salt, column) for salt, column in enumerate(columns)),
            moments=tuple(map(moments_of, numbers)) if scaling else (),
            keys=keys,
            sample=sample,
        )

    def merge(self, parts: Iterable[Counts]) -> Counts:
        """The counts of all parts; associative, and their order makes no difference.

        Raises:
            InvalidRecords: more distinct tokens than memory is meant to hold.
        """
        numeric, categorical = len(self.columns.numeric), len(self.columns.fields) - len(self.columns.numeric)
        rows = 0
        tokens: list[dict[bytes, int]] = [{} for _ in range(categorical)]
        hashes = [np.empty(0, np.uint64)] * categorical
        moments = [Moments()] * numeric
        waiting: list[tuple[NDArray[np.uint64], NDArray[np.float64]]] = []
        for part in parts:
            rows += part.rows
            for found, new in zip(tokens, part.tokens, strict=False):
                for token, count in new.items():
                    found[token] = found.get(token, 0) + count
            self._check_tokens(tokens)
            for place, new_hashes in enumerate(part.hashes):
                hashes[place] = _smallest_hashes(hashes[place], new_hashes)
            moments = [each.plus(new) for each, new in zip(moments, part.moments or [Moments()] * numeric, strict=True)]
            waiting.append((part.keys, part.sample))
            # Sorting what is kept again for each small part would take longer than counting the part did.
            if sum(len(each) for each, _ in waiting) > 2 * SAMPLED_ROWS:
                waiting = [_smallest_of(waiting)]
        keys, sample = _smallest_of([(np.empty(0, np.uint64), np.empty((0, numeric))), *waiting])
        vocabulary, scaling = self.config.categories == "vocabulary", self.config.numbers in ("standard", "min_max")
        return Counts(
            rows=rows,
            tokens=tuple(tokens) if vocabulary else (),
            hashes=() if vocabulary else tuple(hashes),
            moments=tuple(moments) if scaling else (),
            keys=keys,
            sample=sample,
        )

    def _check_tokens(self, tokens: list[dict[bytes, int]]) -> None:
        if sum(map(len, tokens)) > self.most_tokens:
            most = max(range(len(tokens)), key=lambda place: len(tokens[place]))
            name = self.columns.fields[len(self.columns.numeric) + most]
            raise InvalidRecords(
                f"column {name!r}: more than {self.most_tokens} distinct tokens in all columns, {len(tokens[most])} of them here; "
                "hash the categories, or ignore the column"
            )

    def fit(self, counts: Counts) -> Transform:
        """The transform that these counts make.

        Raises:
            InvalidRecords: no rows, or more ids than a table may have.
        """
        if not counts.rows:
            raise InvalidRecords("0 training rows: a transform is fitted on at least one; send more rows or hold fewer out")
        numbers: list[NumberField] = []
        free = 0
        for place, name in enumerate(self.columns.numeric):
            numbers.append(self._number(name, place, counts, free))
            free = numbers[-1].missing + 1
        widths = [1] * len(self.columns.categorical) + [column.values for column in self.columns.multi_valued]
        first_missing, free = free, free + len(widths)
        categories: list[CategoryField] = []
        for salt, (name, width) in enumerate(zip(self.columns.fields[len(numbers) :], widths, strict=True)):
            field = self._category(name, width, salt, counts, missing=first_missing + salt, free=free)
            categories.append(field)
            if field.rare is not None:
                free = field.first + field.size
        if self.config.categories == "hash" and categories:
            free += self.config.hash_size
        if free > LARGEST_TABLE:
            raise InvalidRecords(f"feature_size {free}: at most {LARGEST_TABLE} ids are possible; lower hash_size or max_size")
        return Transform(
            columns=self.columns, numbers=tuple(numbers), categories=tuple(categories), feature_size=free, rows=counts.rows
        )

    def _number(self, name: str, place: int, counts: Counts, first: int) -> NumberField:
        encoding = self.config.numbers
        if encoding == "bucket":
            edges = quantile_edges(counts.sample[:, place], self.config.buckets)
            return NumberField(name=name, encoding=encoding, first=first, missing=first + len(edges) + 1, edges=edges)
        shift, scale = (0.0, 1.0) if encoding == "log" else scaling_of(encoding, counts.moments[place])
        return NumberField(name=name, encoding=encoding, first=first, missing=first + 1, shift=shift, scale=scale)

    def _category(self, name: str, width: int, salt: int, counts: Counts, *, missing: int, free: int) -> CategoryField:
        if self.config.categories == "hash":
            size = self.config.hash_size
            distinct, rate = _collisions(counts.hashes[salt], size)
            return CategoryField(
                name=name, width=width, missing=missing, first=free, size=size, salt=salt, distinct=distinct, collision_rate=rate
            )
        found = counts.tokens[salt]
        kept = sorted((-count, token) for token, count in found.items() if count >= self.config.min_count)
        chosen = tuple(token.decode(errors="surrogateescape") for _, token in kept[: self.config.max_size or None])
        return CategoryField(
            name=name,
            width=width,
            missing=missing,
            first=free + 1,
            size=len(chosen),
            salt=salt,
            rare=free,
            vocabulary=chosen,
            distinct=len(found),
        )


def _smallest_keys(keys_B: NDArray[np.uint64], numbers_BN: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    order = np.argsort(keys_B, kind="stable")[:SAMPLED_ROWS]
    return keys_B[order], numbers_BN[order].astype(np.float64)


def _smallest_of(
    parts: list[tuple[NDArray[np.uint64], NDArray[np.float64]]],
) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    return _smallest_keys(np.concatenate([keys for keys, _ in parts]), np.concatenate([sample for _, sample in parts]))


def _smallest_hashes(kept: NDArray[np.uint64], new: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The smallest of both, sorted, each once; after the first parts hardly any of the new ones is."""
    if not len(kept):
        return new[:SAMPLED_TOKENS]
    places = np.minimum(np.searchsorted(kept, new), len(kept) - 1)
    fresh = new[kept[places] != new]
    if len(kept) >= SAMPLED_TOKENS:
        fresh = fresh[fresh < kept[-1]]
    return np.sort(np.concatenate([kept, fresh]))[:SAMPLED_TOKENS] if len(fresh) else kept


def _flat(column: pa.Array) -> pa.Array:
    """The tokens of a column, lists opened, without missing ones."""
    tokens = (pc.list_flatten(column) if pa.types.is_list(column.type) else column).cast(pa.binary())
    return tokens.filter(pc.greater(pc.binary_length(tokens), 0))


def _token_counts(tokens: pa.Array) -> dict[bytes, int]:
    counted = tokens.value_counts()
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _token_hashes(salt: int, tokens: pa.Array) -> NDArray[np.uint64]:
    distinct = tokens.unique().to_pylist()
    hashes = np.fromiter((token_hash(salt, token) for token in distinct), np.uint64, len(distinct))
    return np.unique(hashes)[:SAMPLED_TOKENS]


def _collisions(hashes: NDArray[np.uint64], size: int) -> tuple[int, float]:
    """How many distinct tokens there were, and the share of them whose id another one has too.

    Counted where all hashes were kept. Beyond that the number is estimated by the largest kept one (Bar-Yossef et al. 2002, k
    minimum values, right within 1 %), and the share by its expectation, 1 - (1 - 1/size)^(distinct - 1).
    """
    if len(hashes) < SAMPLED_TOKENS:
        _, counts = np.unique(hashes % np.uint64(size), return_counts=True)
        return len(hashes), float(counts[counts > 1].sum() / max(len(hashes), 1))
    distinct = round((len(hashes) - 1) * 2.0**64 / float(hashes[-1]))
    return distinct, float(-np.expm1((distinct - 1) * np.log1p(-1.0 / size))) if size > 1 else 1.0
