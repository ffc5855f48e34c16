"""Raw Criteo TSV: label, 13 counts (I1..I13), 26 categories (C1..C26), separated by tabs, missing cells empty.

The id table of `feature_size` rows:

    0..25                 count i present: id 2i with value sign(x) ln(1+|x|); missing: id 2i+1 with value 1
    26..51                category j missing, value 1
    52..feature_size-1    category j present: a stable hash of column and token, value 1

Some published files lost their trailing tabs: a shorter row is completed with missing cells at its end, and never shifted.
"""

import hashlib
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from components.errors import InvalidConfig
from components.preprocess.chunks import Chunk, byte_problem
from components.preprocess.kinds import looks_like, shown
from components.preprocess.lines import clean, split_lines
from components.preprocess.parsed import Parsed, Reason, Reject, place
from components.records import Batch, Schema, concatenate

COUNTS, CATEGORIES = 13, 26
COLUMNS = 1 + COUNTS + CATEGORIES
FIELD_SIZE = COUNTS + CATEGORIES
RESERVED_IDS = 2 * COUNTS + CATEGORIES
DEFAULT_FEATURE_SIZE = 200_000
LABELS = {b"0": 0.0, b"1": 1.0}
# Distinct tokens that a process remembers for all columns together, about 150 bytes each.
_REMEMBERED_TOKENS = 400_000
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


def row_problem(cells: list[bytes]) -> tuple[Reason, str] | None:
    """Why a row is refused; None when it is fine."""
    if problem := width_problem(cells):
        return "columns", problem
    if cells[0] not in LABELS:
        return "label", f"label {shown(cells[0])} is neither 0 nor 1"
    for column, token in enumerate(cells[1 : 1 + COUNTS], start=1):
        if not is_count(token):
            return "cell", f"column I{column}: {shown(token)} is not a whole number"
        if len(token) > _INT64_DIGITS:
            return "cell", f"column I{column}: {shown(token)} has more than {_INT64_DIGITS} digits"
    return None


class CriteoParser:
    """Parses chunks. Remembers what tokens mean, so that each is hashed once."""

    def __init__(self, schema: Schema) -> None:
        if schema.field_size != FIELD_SIZE:
            raise InvalidConfig(f"field_size {schema.field_size}: criteo rows have {FIELD_SIZE} fields; leave --field-size out")
        if schema.feature_size <= RESERVED_IDS:
            raise InvalidConfig(f"feature_size {schema.feature_size}: criteo needs more than {RESERVED_IDS}; raise --feature-size")
        self._counts = [CountValues() for _ in range(COUNTS)]
        self._categories = [CategoryIds(column, schema.feature_size) for column in range(CATEGORIES)]

    def parse(self, chunk: Chunk, *, skip: bool) -> Parsed:
        """Rows of a chunk; wrong ones are refused to the first or, with `skip`, each."""
        data = clean(chunk.data)
        odd_bytes = b"\r" in data or b"\0" in data
        if not odd_bytes and (columns := _columns(data)) is not None:
            with suppress(KeyError, ValueError):
                return self._rows(columns, chunk.first + np.arange(len(columns[0])), completed=0)
        lines = split_lines(chunk)
        texts, numbers, rejects, completed = [], [], [], 0
        for number, text in lines.numbered():
            if not text.strip(b" "):
                continue
            if reject := _reject(chunk, number, text, alone=number == 1 and len(lines.texts) == 1):
                rejects.append(reject)
                if not skip:
                    break
                continue
            lost = COLUMNS - 1 - text.count(b"\t")
            completed += lost > 0
            texts.append(text + b"\t" * lost)
            numbers.append(number)
        columns = _columns(b"\n".join(texts)) if texts else None
        if columns is None:
            # Only where no row is left: what Arrow does not read was refused above.
            assert not texts, f"{chunk.path}: rows that are fine and cannot be read"
            return Parsed(batch=concatenate([], FIELD_SIZE), numbers=np.empty(0, np.int64), rejects=tuple(rejects))
        return replace(self._rows(columns, np.array(numbers), completed), rejects=tuple(rejects))

    def _rows(self, columns: list[pa.DictionaryArray], numbers: NDArray[np.int64], completed: int) -> Parsed:
        """Rows from their cells by column.

        Raises:
            KeyError, ValueError: some label or count is wrong.
        """
        rows, missing_cells = len(numbers), 0
        ids = np.empty((rows, FIELD_SIZE), np.int64)
        values = np.ones((rows, FIELD_SIZE), np.float32)
        labels = _looked_up(columns[0], LABELS, np.float32)
        for column, known in enumerate(self._counts):
            counts = _looked_up(columns[1 + column], known, np.float64)
            missing = np.isnan(counts)
            ids[:, column] = 2 * column + missing
            values[:, column] = np.where(missing, 1.0, np.sign(counts) * np.log1p(np.abs(counts)))
            missing_cells += int(missing.sum())
        for column, remembered in enumerate(self._categories):
            found = _looked_up(columns[1 + COUNTS + column], remembered, np.int64)
            ids[:, COUNTS + column] = found
            missing_cells += int((found == 2 * COUNTS + column).sum())
        self._forget()
        batch = Batch(labels=labels, ids=ids, values=values)
        return Parsed(batch=batch, numbers=numbers, missing=missing_cells, completed=completed)

    def _forget(self) -> None:
        limit = _REMEMBERED_TOKENS // FIELD_SIZE
        for counts in self._counts:
            if len(counts) > limit:
                counts.clear()
        for categories in self._categories:
            if len(categories) > limit:
                categories.clear()


def _looked_up(cells: pa.DictionaryArray, meaning: dict[bytes, Any], kind: Any) -> NDArray[Any]:
    """What the cells of a column mean: each distinct token is looked up once."""
    tokens = cells.dictionary.to_pylist()
    meanings: NDArray[Any] = np.fromiter(map(meaning.__getitem__, tokens), kind, len(tokens))[cells.indices.to_numpy()]
    return meanings


def _columns(data: bytes) -> list[pa.DictionaryArray] | None:
    """Cells by column; None when rows differ in width. Nothing is converted: what a token means is decided here, not by Arrow."""
    names = [str(column) for column in range(COLUMNS)]
    kind = pa.dictionary(pa.int32(), pa.binary())
    try:
        table = csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            parse_options=csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, kind), null_values=[]),
        )
    except pa.ArrowInvalid:
        return None
    return [column.chunk(0) for column in table.columns]


def _reject(chunk: Chunk, number: int, text: bytes, *, alone: bool) -> Reject | None:
    """A line that is refused."""
    where = place(chunk.path, "line", number)
    if problem := byte_problem(text, alone=alone):
        return Reject(number, "bytes", f"{where}: {problem}")
    found = row_problem(text.split(b"\t"))
    return Reject(number, found[0], f"{where}: {found[1]}{looks_like(text, but_not='raw Criteo')}") if found else None
