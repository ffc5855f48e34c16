"""What is learned from training rows: counts of tokens and numbers, which add up in any order, and the transform made of them.

Rows are counted chunk by chunk, in as many processes as there are, and the counts are merged. Whatever the order, the result is the
same to the last bit: sums are exact integers, quantiles come from the rows with the smallest keys, ties are broken by token.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.columns import Columns
from components.preprocess.growing import grown
from components.preprocess.moments import Moments, moments_of, quantile_edges, scaling_of
from components.preprocess.tokens import TokenCounts, added, tokens_of
from components.preprocess.transform import CategoryEncoding, CategoryField, NumberEncoding, NumberField, Transform
from components.records import LARGEST_TABLE

# Distinct tokens of all columns together; 20 to 30 bytes each, and some 150 more while counts are merged.
MOST_TOKENS = 4_000_000
# Rows whose numbers are kept for quantiles: the share of rows below an edge is then right within 0.4 % (two standard errors).
SAMPLED_ROWS = 65_536


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
    distinct: how many tokens there are, a column each, where `tokens` are only the ones that a vocabulary takes
    moments: a numeric column each (standard, min_max)
    keys [S], sample [S, columns]: numbers of the rows with the smallest keys (bucket)
    """

    rows: int
    tokens: tuple[TokenCounts, ...] = ()
    distinct: tuple[int, ...] = ()
    moments: tuple[Moments, ...] = ()
    keys: NDArray[np.uint64]
    sample: NDArray[np.float64]


def nothing_counted(columns: Columns) -> Counts:
    """The counts of no rows."""
    return Counts(rows=0, keys=np.empty(0, np.uint64), sample=np.empty((0, len(columns.numeric))))


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """Counts rows of `columns`, merges counts, and makes the transform: a new one, or `growing` with at most `grow_to` ids."""

    columns: Columns
    config: TransformConfig = TransformConfig()
    most_tokens: int = MOST_TOKENS
    growing: Transform | None = None
    grow_to: int = 0

    @property
    def counts_rows(self) -> bool:
        """Whether anything is learned from rows; else the settings alone make the transform."""
        return self.config.categories == "vocabulary" or self.config.numbers != "log"

    def count(self, batch: pa.RecordBatch, keys_B: NDArray[np.uint64]) -> Counts:
        """What these training rows (raw_rows.py) hold; `keys_B` are those of keys.py."""
        numeric = len(self.columns.numeric)
        numbers = [batch.column(1 + place).to_numpy(zero_copy_only=False) for place in range(numeric)]
        categorical = range(1 + numeric, 1 + len(self.columns.fields))
        vocabulary = self.config.categories == "vocabulary"
        scaling = self.config.numbers in ("standard", "min_max")
        keys, sample = np.empty(0, np.uint64), np.empty((0, numeric))
        if self.config.numbers == "bucket" and numeric:
            keys, sample = _smallest_keys(keys_B, np.stack(numbers, axis=1))
        return Counts(
            rows=batch.num_rows,
            tokens=tuple(tokens_of(batch.column(place)).counts() for place in categorical) if vocabulary else (),
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
        vocabulary, scaling = self.config.categories == "vocabulary", self.config.numbers in ("standard", "min_max")
        rows, tokens = 0, []
        moments = [Moments()] * numeric
        waiting: list[tuple[NDArray[np.uint64], NDArray[np.float64]]] = []
        for part in parts:
            rows += part.rows
            tokens.append(part.tokens)
            moments = [each.plus(new) for each, new in zip(moments, part.moments or [Moments()] * numeric, strict=True)]
            waiting.append((part.keys, part.sample))
            # Sorting what is kept again for each small part would take longer than counting the part did.
            if sum(len(each) for each, _ in waiting) > 2 * SAMPLED_ROWS:
                waiting = [_smallest_of(waiting)]
        keys, sample = _smallest_of([(np.empty(0, np.uint64), np.empty((0, numeric))), *waiting])
        merged = tuple(added([part[column] for part in tokens]) for column in range(categorical)) if vocabulary else ()
        self._check_tokens(merged)
        return Counts(
            rows=rows,
            tokens=merged,
            moments=tuple(moments) if scaling else (),
            keys=keys,
            sample=sample,
        )

    def _check_tokens(self, tokens: Sequence[TokenCounts]) -> None:
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
            InvalidRecords: no rows to learn from, or more ids than a table may have.
        """
        if self.counts_rows and not counts.rows:
            raise InvalidRecords("0 training rows: a transform is fitted on at least one; send more rows or hold fewer out")
        if self.growing:
            return grown(self.growing, counts.tokens, self.config.min_count, self.grow_to)
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
            return CategoryField(name=name, width=width, missing=missing, first=free, size=self.config.hash_size, salt=salt)
        found = counts.tokens[salt]
        kept = found.frequent(self.config.min_count, self.config.max_size)
        chosen = tuple(token.decode(errors="surrogateescape") for token in kept)
        return CategoryField(
            name=name,
            width=width,
            missing=missing,
            first=free + 1,
            size=len(chosen),
            salt=salt,
            rare=free,
            vocabulary=chosen,
            distinct=counts.distinct[salt] if counts.distinct else len(found),
        )


def _smallest_keys(keys_B: NDArray[np.uint64], numbers_BN: NDArray[np.float64]) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    order = np.argsort(keys_B, kind="stable")[:SAMPLED_ROWS]
    return keys_B[order], numbers_BN[order].astype(np.float64)


def _smallest_of(
    parts: list[tuple[NDArray[np.uint64], NDArray[np.float64]]],
) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    return _smallest_keys(np.concatenate([keys for keys, _ in parts]), np.concatenate([sample for _, sample in parts]))


@dataclass(kw_only=True)
class Counting:
    """The counts of parts that come one by one. Large ones are merged only as often as they double."""

    fitting: Fitting
    _parts: list[Counts] = field(default_factory=list)

    def add(self, part: Counts) -> None:
        self._parts.append(part)
        if sum(map(_size, self._parts[1:])) > _size(self._parts[0]):
            self._parts = [self.fitting.merge(self._parts)]

    @property
    def tokens(self) -> int:
        """How many are held, those that stand in several parts as often."""
        return sum(len(tokens) for part in self._parts for tokens in part.tokens)

    def total(self) -> Counts | None:
        """All of them; None where there were none."""
        return self.fitting.merge(self._parts) if self._parts else None


def _size(counts: Counts) -> int:
    """Of what a merge copies."""
    return 1 + len(counts.keys) + sum(map(len, counts.tokens))
