"""LibSVM text: `label id:value id:value ...`, one row a line.

Accepted: tabs, repeated and trailing spaces, `#` comments, blank lines, labels 0/1 and -1/+1, any order of ids (kept), an explicit
zero (kept). Every row must hold exactly `field_size` pairs, because the model's input is rectangular. An id may stand in a row
once; only with value 0, which adds nothing, may it be repeated to fill a row up.
"""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from components.errors import InvalidRecords
from components.preprocess.chunks import Chunk, byte_problem
from components.preprocess.kinds import looks_like, shown
from components.preprocess.lines import Lines, clean, read_lines, split_lines
from components.preprocess.parsed import LABELS, BadRow, Parsed, Reject, place
from components.records import LARGEST_TABLE, Batch, Schema

_WHOLE = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE)


def parse_label(token: bytes, where: str) -> float:
    """0 or 1 from the first token of a row."""
    label = LABELS.get(float(token)) if _NUMBER.fullmatch(token) else None
    if label is None:
        raise BadRow("label", f"{where}: label {shown(token)} is none of 0, 1, -1, +1")
    return label


def parse_pair(pair: bytes, schema: Schema, where: str) -> tuple[int, float]:
    """Id (0-based) and value of one `id:value`; every failing reason is named."""
    name, _, text = pair.partition(b":")
    if name == b"qid":
        raise BadRow("pair", f"{where}: {shown(pair)} is a query id of LibSVM ranking data; click data have none, remove it")
    if len(parts := pair.split(b":")) == 3 and all(_NUMBER.fullmatch(part) for part in parts):
        raise BadRow("pair", f"{where}: {shown(pair)} looks like LibFFM (field:id:value); LibSVM is id:value")
    if not _is_pair(pair):
        raise BadRow("pair", f"{where}: {shown(pair)} is not id:value with a whole id and a number")
    # More digits than int() converts are outside any table, too.
    number = int(name) if len(name) < 30 else None
    if number is None or not 0 <= number - schema.id_base < schema.feature_size:
        raise BadRow("id", f"{where}: id {name[:40].decode()} is outside {id_range(schema)}; {id_hint(name, schema)}")
    value = float(text)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(value)):
            raise BadRow("value", f"{where}: value in {shown(pair)} is not finite as float32")
    return number - schema.id_base, value


def _is_pair(token: bytes) -> bool:
    name, _, text = token.partition(b":")
    return bool(_WHOLE.fullmatch(name) and _NUMBER.fullmatch(text))


def id_range(schema: Schema) -> str:
    return f"{schema.id_base}..{schema.feature_size - 1 + schema.id_base}"


def id_hint(name: bytes, schema: Schema) -> str:
    if name.startswith(b"-") or int(name[:30]) < schema.id_base:
        return "check --id-base"
    if schema.feature_size == LARGEST_TABLE:
        return "no larger table is possible, map the ids to a smaller range"
    return "raise --feature-size or check --id-base"


def parse_row(text: bytes, schema: Schema, where: str) -> tuple[float, list[int], list[float]]:
    """One row, token by token: the slow path, which knows what to say about a wrong one."""
    tokens = text.split()
    try:
        label = parse_label(tokens[0], where)
        pairs = [parse_pair(token, schema, where) for token in tokens[1:]]
    except BadRow as error:
        raise BadRow(error.reason, f"{error}{other_kind(text)}") from None
    if len(pairs) != schema.field_size:
        raise BadRow("width", f"{where}: {len(pairs)} fields, field_size is {schema.field_size}; every row needs as many")
    ids, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if repeated_ids(np.array([ids]), np.array([values], np.float32)).any():
        twice = next(index for index in ids if ids.count(index) > 1)
        raise BadRow(
            "repeated id", f"{where}: id {twice + schema.id_base} stands more than once in the row; add its values up or drop one"
        )
    return label, ids, values


def other_kind(text: bytes) -> str:
    """The end of a refusal of a line that has no pairs at all."""
    return "" if b":" in text else looks_like(text, but_not="LibSVM")


def repeated_ids(ids_BF: NDArray[np.int64], values_BF: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Which rows [B] hold an id more than once with values other than zero."""
    unlike = -1 - np.arange(ids_BF.shape[1])
    ordered = np.sort(np.where(values_BF == 0, unlike, ids_BF), axis=1)
    repeated: NDArray[np.bool_] = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return repeated


def parse_fast(texts: list[bytes], schema: Schema) -> Batch | None:
    """Rows of some lines, which may hold any white space, all at once; None when anything is unusual."""
    return parse_regular(b"".join(b" ".join(text.split()) + b"\n" for text in texts), schema)


def parse_regular(data: bytes, schema: Schema) -> Batch | None:
    """Rows of lines with one blank between their words, converted by Arrow's CSV reader; None when anything is unusual.

    Arrow reads numbers as Python does (correctly rounded to float64, then to float32), but takes some words that this format has
    not, and trims tabs. So only digits, signs, points and exponents may stand between separators, and those must have the
    sequence of rows of `field_size` pairs.
    """
    width = 1 + 2 * schema.field_size
    separators = data.translate(None, b"0123456789+-.eE")
    rows = len(separators) // width
    if rows == 0 or data[-1:] != b"\n" or separators != (b" :" * schema.field_size + b"\n") * rows:
        return None
    if b"+" in data:
        # Arrow reads no plus sign: that of a label is dropped, any other is left to the slow path.
        if b"+-" in data:
            return None
        data = data.replace(b"\n+", b"\n").removeprefix(b"+")
    columns = _columns(data, width)
    if columns is None:
        return None
    labels = columns[0]
    ids, values = np.empty((rows, schema.field_size), np.int64), np.empty((rows, schema.field_size), np.float32)
    with np.errstate(over="ignore"):
        for field in range(schema.field_size):
            ids[:, field], values[:, field] = columns[1 + 2 * field], columns[2 + 2 * field]
    in_table = (ids >= schema.id_base) & (ids - schema.id_base < schema.feature_size)
    if not (np.isin(labels, list(LABELS)).all() and in_table.all() and np.isfinite(values).all()):
        return None
    ids -= schema.id_base
    # Rows whose ids rise hold none twice, and most are such.
    unordered = ~(ids[:, 1:] > ids[:, :-1]).all(axis=1)
    if unordered.any() and repeated_ids(ids[unordered], values[unordered]).any():
        return None
    return Batch(labels=(labels > 0).astype(np.float32), ids=ids, values=values)


def _columns(data: bytes, width: int) -> list[NDArray[Any]] | None:
    """Label, id, value, id, value ... as columns; None when Arrow reads a word otherwise than as a number."""
    letters = np.frombuffer(data, np.uint8)
    # A colon into a blank, in a tenth of the time of bytes.replace.
    words = letters - (letters == ord(":")) * np.uint8(ord(":") - ord(" "))
    names = [str(column) for column in range(width)]
    types = {name: pa.int64() if column % 2 else pa.float64() for column, name in enumerate(names)}
    try:
        table = csv.read_csv(
            pa.BufferReader(pa.py_buffer(words)),
            read_options=csv.ReadOptions(use_threads=False, block_size=len(words) + 1, column_names=names),
            parse_options=csv.ParseOptions(delimiter=" ", quote_char=False, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(column_types=types, null_values=[], check_utf8=False),
        )
    except pa.ArrowInvalid:
        return None
    return [column.chunk(0).to_numpy() for column in table.columns]


def without_comments(lines: Lines) -> list[tuple[int, bytes]]:
    """Numbers and contents of the lines that hold rows."""
    contents = ((number, text.partition(b"#")[0] if b"#" in text else text) for number, text in lines.numbered())
    return [(number, text) for number, text in contents if text and not text.isspace()]


def parse_libsvm(chunk: Chunk, schema: Schema, *, skip: bool) -> Parsed:
    """Rows of a chunk; when the fast way fails they are taken one by one, to the first wrong one or, with `skip`, over each."""
    data = clean(chunk.data)
    batch = parse_regular(data if data.endswith(b"\n") else data + b"\n", schema)
    if batch is not None:
        return Parsed(batch=batch, numbers=np.arange(chunk.first, chunk.first + len(batch)))
    lines = split_lines(chunk)
    numbered = without_comments(lines)
    good = list(range(len(numbered)))
    rejects: list[Reject] = []
    odd_bytes = b"\r" in data or b"\0" in data
    batch = None if odd_bytes else parse_fast([text for _, text in numbered], schema)
    if batch is None:
        rows = []
        good = []
        for index, (number, text) in enumerate(numbered):
            where = place(chunk.path, "line", number)
            try:
                if odd_bytes and (problem := byte_problem(text, alone=number == 1 and len(lines.texts) == 1)):
                    raise BadRow("bytes", f"{where}: {problem}")
                rows.append(parse_row(text, schema, where))
                good.append(index)
            except BadRow as error:
                rejects.append(Reject(number, error.reason, str(error)))
                if not skip:
                    break
        batch = Batch(
            labels=np.array([row[0] for row in rows], np.float32),
            ids=np.array([row[1] for row in rows], np.int64).reshape(len(rows), schema.field_size),
            values=np.array([row[2] for row in rows], np.float32).reshape(len(rows), schema.field_size),
        )
    numbers = np.array([numbered[index][0] for index in good], np.int64)
    return Parsed(batch=batch, numbers=numbers, rejects=tuple(rejects))


def peek_pairs(path: Path) -> int:
    """How many pairs the first row holds that is made of pairs: one that is not tells its own fault where it is parsed, or skipped.

    Raises:
        InvalidRecords: no row, or a first row that is not LibSVM.
    """
    for lines in read_lines(path):
        rows = without_comments(lines)
        for number, text in rows[:1]:
            if len(text.split()) == 1:
                found = other_kind(text) or "; every row needs as many, give --field-size"
                raise InvalidRecords(f"{path}, line {number}: 0 fields in {shown(text.strip())}{found}")
        widths = (len(pairs) for _, text in rows if (pairs := text.split()[1:]) and all(map(_is_pair, pairs)))
        if rows:
            return next(widths, len(rows[0][1].split()) - 1)
    raise InvalidRecords(f"{path}: no rows in it; remove the file or send it again")
