"""Raw Criteo TSV: label, 13 counts (I1..I13), 26 categories (C1..C26), separated by tabs, missing cells empty.

A chunk becomes the Arrow columns of raw_rows.py, categories as dictionaries of bytes: they need not be UTF-8, and each distinct one
is looked up once. Rows to score have no label, and 39 columns.

Some published files lost their trailing tabs: a shorter row is completed with missing cells at its end, and never shifted.

Array suffix: B rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from components.preprocess.chunks import Chunk, byte_problem
from components.preprocess.columns import Columns
from components.preprocess.kinds import looks_like, shown
from components.preprocess.lines import clean, split_lines
from components.preprocess.parsed import Reason, Reject, place
from components.preprocess.raw_rows import RawRows, no_labels, raw_schema

COUNTS, CATEGORIES = 13, 26
FIELD_SIZE = COUNTS + CATEGORIES
# An id for each count, one for each missing cell; the rest of a table is for hashed tokens.
RESERVED_IDS = 2 * COUNTS + CATEGORIES
CRITEO = Columns(
    label="label",
    numeric=tuple(f"I{number}" for number in range(1, COUNTS + 1)),
    categorical=tuple(f"C{number}" for number in range(1, CATEGORIES + 1)),
)
_LABELS = {b"0": 0.0, b"1": 1.0}
_INT64_DIGITS = 18
# Counts whose number is remembered; most of them stand in every chunk.
_REMEMBERED = 1 << 16


def is_count(token: bytes) -> bool:
    """Whether a cell may stand in a count column: empty, or a whole number. ASCII digits only, no underscores, no blanks."""
    return token == b"" or token.removeprefix(b"-").isdigit()


def _digits(count: bytes) -> int:
    return len(count.removeprefix(b"-"))


@lru_cache(_REMEMBERED)
def _count(token: bytes) -> float:
    """The number of a count column, NaN where missing, infinite where it is none."""
    if not is_count(token) or _digits(token) > _INT64_DIGITS:
        return np.inf
    return float(int(token)) if token else np.nan


def _label(token: bytes) -> float:
    return _LABELS.get(token, np.inf)


@dataclass(frozen=True, kw_only=True)
class CriteoParser:
    """Turns chunks into raw rows.

    Attributes:
        columns: those of CRITEO; without `label` rows are to be scored, and a label that stands there is passed over.
        labelled: whether it stands there.
    """

    columns: Columns
    labelled: bool

    @property
    def width(self) -> int:
        return self.labelled + FIELD_SIZE

    def parse(self, chunk: Chunk) -> RawRows:
        """Rows of a chunk; wrong ones are refused."""
        data = clean(chunk.data)
        odd_bytes = b"\r" in data or b"\0" in data
        if not odd_bytes and (cells := _cells(data, self.width)) is not None:
            return self._rows(chunk, cells, chunk.first + np.arange(len(cells[0])))
        lines = split_lines(chunk)
        texts, numbers, rejects, completed = [], [], [], 0
        for number, text in lines.numbered():
            lost = self.width - 1 - text.count(b"\t")
            if lost == self.width - 1 and not text.strip(b" "):
                continue
            tidy = not odd_bytes and (lost == 0 or self._lost_cells_only(text, lost))
            if not tidy and (wrong := self._reject(chunk, number, text, alone=number == 1 == len(lines.texts))):
                rejects.append(wrong)
                continue
            completed += lost > 0
            texts.append(text + b"\t" * lost)
            numbers.append(number)
        cells = _cells(b"\n".join(texts), self.width) if texts else [_none()] * self.width
        assert cells is not None, f"{chunk.path}: rows of one width that cannot be read"
        return self._rows(chunk, cells, np.array(numbers, np.int64), rejects, completed)

    def _rows(
        self,
        chunk: Chunk,
        cells: list[pa.DictionaryArray],
        numbers: NDArray[np.int64],
        rejects: Sequence[Reject] = (),
        completed: int = 0,
    ) -> RawRows:
        """Rows of the right width from their cells by column; those with a wrong label or count are refused."""
        fields = cells[self.labelled :]
        labels = no_labels(len(numbers)) if self.columns.label is None else _looked_up(cells[0], _label).astype(np.float32)
        counts = [_looked_up(column, _count) for column in fields[:COUNTS]]
        right = ~np.isinf(labels)
        for each in counts:
            right &= ~np.isinf(each)
        arrays = [pa.array(labels), *(pa.array(each, from_pandas=True) for each in counts), *fields[COUNTS:]]
        if self.columns.split is not None:
            arrays.append(_text(fields[COUNTS + CRITEO.categorical.index(self.columns.split)]))
        batch = pa.RecordBatch.from_arrays(arrays, names=[field.name for field in raw_schema(self.columns)])
        if right.all():
            return RawRows(batch=batch, numbers=numbers, rejects=tuple(rejects), completed=completed)
        found = list(rejects)
        for row in np.flatnonzero(~right).tolist():
            text = b"\t".join(column[row].as_py() for column in cells)
            wrong = self._reject(chunk, int(numbers[row]), text, alone=False)
            assert wrong is not None, f"{chunk.path}, line {numbers[row]}: refused without a reason"
            found.append(wrong)
        return RawRows(
            batch=batch.filter(pa.array(right)),
            numbers=numbers[right],
            rejects=tuple(sorted(found, key=lambda reject: reject.number)),
            completed=completed,
        )

    def _lost_cells_only(self, text: bytes, lost: int) -> bool:
        """Whether a shorter row lacks nothing but cells at its end; what it has is looked at with all other rows."""
        if not 0 < lost <= CATEGORIES:
            return False
        return not self.labelled or (text[:2] in (b"0\t", b"1\t") and is_count(text.split(b"\t", 1 + COUNTS)[COUNTS]))

    def _reject(self, chunk: Chunk, number: int, text: bytes, *, alone: bool) -> Reject | None:
        """A line that is refused; None when it is fine."""
        where = place(chunk.path, "line", number)
        if problem := byte_problem(text, alone=alone):
            return Reject(number, "bytes", f"{where}: {problem}")
        found = self.row_problem(text.split(b"\t"))
        return Reject(number, found[0], f"{where}: {found[1]}{looks_like(text, but_not='raw Criteo')}") if found else None

    def row_problem(self, cells: list[bytes]) -> tuple[Reason, str] | None:
        """Why a row is refused; None when it is fine."""
        if problem := self.width_problem(cells):
            return "columns", problem
        if self.columns.label is not None and cells[0] not in _LABELS:
            return "label", f"label {shown(cells[0])} is neither 0 nor 1"
        for column, token in enumerate(islice(cells, self.labelled, self.labelled + COUNTS), start=1):
            if not is_count(token):
                return "cell", f"column I{column}: {shown(token)} is not a whole number"
            if _digits(token) > _INT64_DIGITS:
                return "cell", f"column I{column}: {shown(token)} has more than {_INT64_DIGITS} digits"
        return None

    def width_problem(self, cells: list[bytes]) -> str:
        """Why a row of another width cannot be completed; empty when it can."""
        found = len(cells)
        expected = f"{self.width} columns expected ({'with' if self.labelled else 'without'} label), {found} found"
        if found == 1:
            return f"{expected}; cells must be separated by tabs, the line starts with {shown(cells[0])}"
        if not self.labelled and found == self.width + 1 and cells[0] in _LABELS:
            return f"{expected}; the label stands there: all rows must have one, or none"
        lost_label = self.labelled and 1 + COUNTS <= found < self.width and (cells[0] not in _LABELS or not is_count(cells[COUNTS]))
        if lost_label and (is_count(cells[0]) and all(map(is_count, cells[1:COUNTS]))):
            return f"{expected}; the label is missing (such rows can be scored, not trained on), or the line lost a cell"
        return "" if self.labelled + COUNTS <= found <= self.width else expected


def has_labels(opening: bytes) -> bool:
    """Whether the first row that is not blank has a label, by its width: one of 39 columns or less is taken to have none."""
    rows = (line for line in clean(opening).split(b"\n") if line.strip(b" "))
    return next(rows, b"").count(b"\t") >= FIELD_SIZE


def _looked_up(cells: pa.DictionaryArray, meaning: Callable[[bytes], float]) -> NDArray[np.float64]:
    """What the cells of a column mean: each distinct token is looked up once."""
    tokens = cells.dictionary.to_pylist()
    found: NDArray[np.float64] = np.fromiter(map(meaning, tokens), np.float64, len(tokens))[cells.indices.to_numpy()]
    return found


def _text(cells: pa.DictionaryArray) -> pa.Array:
    """Cells as text, missing ones null; what is not UTF-8 is escaped."""
    texts = [token.decode(errors="backslashreplace") or None for token in cells.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(cells.indices)


def _none() -> pa.DictionaryArray:
    return pa.array([], pa.binary()).dictionary_encode()


def _cells(data: bytes, width: int) -> list[pa.DictionaryArray] | None:
    """Cells by column; None when rows differ in width. Nothing is converted: what a token means is decided here, not by Arrow."""
    if data.startswith(b"\n") or b"\n\n" in data:
        return None  # which Arrow would take for rows of empty cells
    names = [str(column) for column in range(width)]
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
