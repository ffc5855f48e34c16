"""LibSVM text: `label id:value id:value ...`, one row a line.

Accepted: tabs, repeated and trailing spaces, `#` comments, blank lines, labels 0/1 and -1/+1, any order of ids (kept), an explicit
zero (kept). Every row must hold exactly `field_size` pairs, because the model's input is rectangular. An id may stand in a row
once; only with value 0, which adds nothing, may it be repeated to fill a row up.
"""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.preprocess.kinds import looks_like, shown
from components.preprocess.lines import Lines, read_lines
from components.records import Batch, Schema

LABELS = {0.0: 0.0, -1.0: 0.0, 1.0: 1.0}
LARGEST_TABLE = 2**31 - 1
_WHOLE = re.compile(rb"[+-]?[0-9]+")
_NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE)


def parse_label(token: bytes, where: str) -> float:
    """0 or 1 from the first token of a row."""
    label = LABELS.get(float(token)) if _NUMBER.fullmatch(token) else None
    if label is None:
        raise InvalidRecords(f"{where}: label {shown(token)} is none of 0, 1, -1, +1")
    return label


def parse_pair(pair: bytes, schema: Schema, where: str) -> tuple[int, float]:
    """Id (0-based) and value of one `id:value`; every failing reason is named."""
    name, colon, text = pair.partition(b":")
    if name == b"qid":
        raise InvalidRecords(f"{where}: {shown(pair)} is a query id of LibSVM ranking data; click data have none, remove it")
    if len(parts := pair.split(b":")) == 3 and all(_NUMBER.fullmatch(part) for part in parts):
        raise InvalidRecords(f"{where}: {shown(pair)} looks like LibFFM (field:id:value); LibSVM is id:value")
    if not (colon and _WHOLE.fullmatch(name) and _NUMBER.fullmatch(text)):
        raise InvalidRecords(f"{where}: {shown(pair)} is not id:value with a whole id and a number")
    # More digits than int() converts are outside any table, too.
    number = int(name) if len(name) < 30 else None
    if number is None or not 0 <= number - schema.id_base < schema.feature_size:
        raise InvalidRecords(f"{where}: id {name[:40].decode()} is outside {id_range(schema)}; {id_hint(name, schema)}")
    value = float(text)
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(value)):
            raise InvalidRecords(f"{where}: value in {shown(pair)} is not finite as float32")
    return number - schema.id_base, value


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
    except InvalidRecords as error:
        raise InvalidRecords(f"{error}{other_kind(text)}") from None
    if len(pairs) != schema.field_size:
        raise InvalidRecords(f"{where}: {len(pairs)} fields, field_size is {schema.field_size}; every row needs as many")
    ids, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if repeated_ids(np.array([ids]), np.array([values], np.float32)).any():
        twice = next(index for index in ids if ids.count(index) > 1)
        raise InvalidRecords(
            f"{where}: id {twice + schema.id_base} stands more than once in the row; add its values up or drop one"
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
    """Rows of some lines, all numbers converted at once; None when anything is unusual."""
    rows, fields = len(texts), schema.field_size
    words = [text.split() for text in texts]
    # With one label and `fields` words a line, and as many colons, each word can only be id:value if every word splits in two.
    if any(len(line) != 1 + fields for line in words) or any(text.count(b":") != fields for text in texts):
        return None
    joined = b" ".join(chain.from_iterable(words))
    tokens = joined.replace(b":", b" ").split()
    # Python's int() and float() read 1_000 as a thousand; no other tool that writes LibSVM does.
    if len(tokens) != rows * (1 + 2 * fields) or b"_" in joined:
        return None
    grid = np.array(tokens, dtype=object).reshape(rows, 1 + 2 * fields)
    try:
        with np.errstate(over="ignore"):
            labels = grid[:, 0].astype(np.float64)
            ids = grid[:, 1::2].astype(np.int64)
            values = grid[:, 2::2].astype(np.float32)
    except (ValueError, OverflowError):
        return None
    in_table = (ids >= schema.id_base) & (ids - schema.id_base < schema.feature_size)
    if not (np.isin(labels, list(LABELS)).all() and in_table.all() and np.isfinite(values).all()):
        return None
    ids -= schema.id_base
    return None if repeated_ids(ids, values).any() else Batch(labels=(labels > 0).astype(np.float32), ids=ids, values=values)


def without_comments(lines: Lines) -> list[tuple[int, bytes]]:
    """Numbers and contents of the lines that hold rows."""
    contents = ((number, text.partition(b"#")[0] if b"#" in text else text) for number, text in lines.numbered())
    return [(number, text) for number, text in contents if text and not text.isspace()]


def parse_lines(numbered: list[tuple[int, bytes]], schema: Schema, path: Path) -> Batch:
    """Rows of some lines; when the fast way fails the rows are taken one by one to name the first wrong one."""
    texts = [text for _, text in numbered]
    if (batch := parse_fast(texts, schema)) is not None:
        return batch
    parsed = [parse_row(text, schema, f"{path}, line {number}") for number, text in numbered]
    return Batch(
        labels=np.array([row[0] for row in parsed], np.float32),
        ids=np.array([row[1] for row in parsed], np.int64).reshape(len(parsed), schema.field_size),
        values=np.array([row[2] for row in parsed], np.float32).reshape(len(parsed), schema.field_size),
    )


def read_libsvm(path: Path, schema: Schema) -> Iterator[Batch]:
    """Rows of one file, batch by batch.

    Raises:
        InvalidRecords: naming file, line and token of the first row that is wrong.
    """
    for lines in read_lines(path):
        if numbered := without_comments(lines):
            yield parse_lines(numbered, schema, path)


def peek_pairs(path: Path) -> int:
    """How many pairs the first row holds.

    Raises:
        InvalidRecords: no row, or a first row that is not LibSVM.
    """
    for lines in read_lines(path):
        for number, text in without_comments(lines)[:1]:
            where = f"{path}, line {number}"
            pairs = len(text.split()) - 1
            if pairs == 0:
                found = other_kind(text) or "; every row needs as many, give --field-size"
                raise InvalidRecords(f"{where}: 0 fields in {shown(text.strip())}{found}")
            return pairs
    raise InvalidRecords(f"{path}: no rows in it; remove the file or send it again")
