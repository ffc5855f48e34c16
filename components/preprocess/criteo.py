"""Raw Criteo TSV: label, 13 counts (I1..I13), 26 categories (C1..C26), separated by tabs, missing cells empty.

The id table of `feature_size` rows:

    0..25                 count i present: id 2i with value sign(x) ln(1+|x|); missing: id 2i+1 with value 1
    26..51                category j missing, value 1
    52..feature_size-1    category j present: a stable hash of column and token, value 1

Some published files lost their trailing tabs: a shorter row is completed with missing cells at its end, and never shifted.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.kinds import looks_like, shown
from components.preprocess.lines import Lines, read_lines
from components.records import Batch, Schema

COUNTS, CATEGORIES = 13, 26
COLUMNS = 1 + COUNTS + CATEGORIES
FIELD_SIZE = COUNTS + CATEGORIES
RESERVED_IDS = 2 * COUNTS + CATEGORIES
DEFAULT_FEATURE_SIZE = 200_000
LABELS = {b"0": 0.0, b"1": 1.0}
# Distinct tokens remembered for all columns together, about 150 bytes each.
_REMEMBERED_TOKENS = 2_000_000
_INT64_DIGITS = 18


def is_count(token: bytes) -> bool:
    """Whether a cell may stand in a count column: empty, or a whole number. ASCII digits only, no underscores, no blanks."""
    return token == b"" or token.removeprefix(b"-").isdigit()


class CountValues(dict[bytes, float]):
    """Token of a count column to its number, NaN where missing; filled as tokens are met."""

    def __missing__(self, token: bytes) -> float:
        if not is_count(token) or len(token) > _INT64_DIGITS:
            raise ValueError(token)
        value = self[token] = float(int(token)) if token else np.nan
        return value


class CategoryIds(dict[bytes, int]):
    """Token of one category column to its id; filled as tokens are met."""

    def __init__(self, column: int, feature_size: int) -> None:
        super().__init__()
        self.column, self.feature_size = column, feature_size

    def __missing__(self, token: bytes) -> int:
        found = self[token] = category_id(self.column, token, self.feature_size) if token else 2 * COUNTS + self.column
        return found


def category_id(column: int, token: bytes, feature_size: int) -> int:
    """The same id on every machine and day. Source of the idea: Weinberger et al. 2009, feature hashing."""
    digest = hashlib.blake2b(token, digest_size=8, salt=column.to_bytes(16, "little")).digest()
    return RESERVED_IDS + int.from_bytes(digest, "little") % (feature_size - RESERVED_IDS)


def width_problem(cells: list[bytes]) -> str:
    """Why a row of another width than COLUMNS cannot be completed; empty when it can."""
    found = len(cells)
    expected = f"{COLUMNS} columns expected (with label), {found} found"
    if found == 1:
        return f"{expected}; cells must be separated by tabs, the line starts with {shown(cells[0])}"
    lost_label = 1 + COUNTS <= found < COLUMNS and (cells[0] not in LABELS or not is_count(cells[COUNTS]))
    if lost_label and (is_count(cells[0]) and all(map(is_count, cells[1:COUNTS]))):
        return f"{expected}; the label is missing, or the line lost a cell"
    return "" if 1 + COUNTS <= found <= COLUMNS else expected


def row_problem(cells: list[bytes]) -> str:
    """Why a row is refused; empty when it is fine."""
    if problem := width_problem(cells):
        return problem
    if cells[0] not in LABELS:
        return f"label {shown(cells[0])} is neither 0 nor 1"
    for column, token in enumerate(cells[1 : 1 + COUNTS], start=1):
        if not is_count(token):
            return f"column I{column}: {shown(token)} is not a whole number"
        if len(token) > _INT64_DIGITS:
            return f"column I{column}: {shown(token)} has more than {_INT64_DIGITS} digits"
    return ""


class CriteoReader:
    """Reads files. Remembers what tokens mean, and how many cells were missing and rows were completed."""

    def __init__(self, schema: Schema) -> None:
        if schema.field_size != FIELD_SIZE:
            raise InvalidConfig(f"field_size {schema.field_size}: criteo rows have {FIELD_SIZE} fields; leave --field-size out")
        if schema.feature_size <= RESERVED_IDS:
            raise InvalidConfig(f"feature_size {schema.feature_size}: criteo needs more than {RESERVED_IDS}; raise --feature-size")
        self.missing_cells = 0
        self.completed_rows = 0
        self._counts = [CountValues() for _ in range(COUNTS)]
        self._categories = [CategoryIds(column, schema.feature_size) for column in range(CATEGORIES)]

    def _batch(self, columns: list[list[bytes]]) -> Batch:
        """Rows from their cells by column.

        Raises:
            KeyError, ValueError: some label or count is wrong.
        """
        rows = len(columns[0])
        labels = np.array([LABELS[token] for token in columns[0]], np.float32)
        ids = np.empty((rows, FIELD_SIZE), np.int64)
        values = np.ones((rows, FIELD_SIZE), np.float32)
        for column, known in enumerate(self._counts):
            counts = np.fromiter(map(known.__getitem__, columns[1 + column]), np.float64, rows)
            missing = np.isnan(counts)
            ids[:, column] = 2 * column + missing
            values[:, column] = np.where(missing, 1.0, np.sign(counts) * np.log1p(np.abs(counts)))
            self.missing_cells += int(missing.sum())
        for column, remembered in enumerate(self._categories):
            found = np.fromiter(map(remembered.__getitem__, columns[1 + COUNTS + column]), np.int64, rows)
            ids[:, COUNTS + column] = found
            self.missing_cells += int((found == 2 * COUNTS + column).sum())
        self._forget()
        return Batch(labels=labels, ids=ids, values=values)

    def _forget(self) -> None:
        limit = _REMEMBERED_TOKENS // FIELD_SIZE
        for counts in self._counts:
            if len(counts) > limit:
                counts.clear()
        for categories in self._categories:
            if len(categories) > limit:
                categories.clear()

    def _columns(self, texts: list[bytes]) -> list[list[bytes]]:
        """Cells by column, shorter rows completed.

        Raises:
            ValueError: a row of a width that cannot be completed.
        """
        if any(text.count(b"\t") != COLUMNS - 1 for text in texts):
            texts = [text + b"\t" * self._lost(text) for text in texts]
        cells = b"\t".join(texts).split(b"\t")
        return [cells[column::COLUMNS] for column in range(COLUMNS)]

    def _lost(self, text: bytes) -> int:
        """How many tabs a row lost at its end."""
        lost = COLUMNS - 1 - text.count(b"\t")
        if lost and width_problem(text.split(b"\t")):
            raise ValueError(text)
        self.completed_rows += lost > 0
        return lost

    def read(self, path: Path) -> Iterator[Batch]:
        """Rows of one file, batch by batch.

        Raises:
            InvalidRecords: naming file, line and cell of the first row that is wrong.
        """
        for lines in read_lines(path):
            texts = [text for text in lines.texts if text.strip(b" ")]
            try:
                batch = self._batch(self._columns(texts)) if texts else None
            except (KeyError, ValueError):
                refuse_first_wrong_row(path, lines)
                raise
            if batch:
                yield batch


def refuse_first_wrong_row(path: Path, lines: Lines) -> None:
    for number, text in lines.numbered():
        if text.strip(b" ") and (problem := row_problem(text.split(b"\t"))):
            raise InvalidRecords(f"{path}, line {number}: {problem}{looks_like(text, but_not='raw Criteo')}")
