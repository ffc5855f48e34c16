"""LibSVM text as a dataset's own encoding: `label id:value id:value ...`, a row a line, ids from 0 in the order of fields.

What other tools write is read by components/preprocess/libsvm.py, which forgives what is legal; here every line is as
`encode_lines` writes it, and what differs is damage.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.records import BLOCK_ROWS, Batch, Schema, check_batch


def encode_lines(batch: Batch) -> bytes:
    """Rows as lines. A value has as many digits as it takes to read the same float32 again."""
    values = batch.values.astype(np.str_).tolist()
    rows = zip(batch.labels.astype(np.int64).tolist(), batch.ids.tolist(), values, strict=True)
    lines = (f"{label} " + " ".join(map("%d:%s".__mod__, zip(ids, texts, strict=True))) for label, ids, texts in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def read_lines(path: Path, schema: Schema) -> Iterator[Batch]:
    """Rows of one file in batches of at most BLOCK_ROWS, every line checked.

    Raises:
        InvalidRecords: naming file and line, counted from 1.
    """
    with path.open("rb") as file:
        for found in scan_lines(file, str(path), schema):
            if isinstance(found, InvalidRecords):
                raise found
            yield found


def scan_lines(file: BinaryIO, name: str, schema: Schema) -> Iterator[Batch | InvalidRecords]:
    """Rows of text, and in the place of a wrong line what is wrong with it; `name` is for messages."""
    first = 1
    while lines := list(islice(file, BLOCK_ROWS)):
        batch = _parse(lines, schema)
        if batch is not None:
            yield batch
        else:
            yield from (_row(line, schema, f"{name}, line {number}") for number, line in enumerate(lines, first))
        first += len(lines)


def _parse(lines: list[bytes], schema: Schema) -> Batch | None:
    """All rows at once; None when something is wrong with one of them."""
    rows, fields = len(lines), schema.field_size
    words = b" ".join(lines).replace(b":", b" ").split()
    if len(words) != rows * (1 + 2 * fields) or any(line.count(b":") != fields or line[-1:] != b"\n" for line in lines):
        return None
    grid: NDArray[np.object_] = np.array(words, dtype=object).reshape(rows, 1 + 2 * fields)
    try:
        with np.errstate(over="ignore"):
            labels, ids, values = grid[:, 0].astype(np.float32), grid[:, 1::2].astype(np.int64), grid[:, 2::2].astype(np.float32)
        batch = Batch(labels=labels, ids=ids, values=values)
        check_batch(batch, schema, "")
    except (ValueError, OverflowError, InvalidRecords):
        return None
    return batch


def _row(line: bytes, schema: Schema, place: str) -> Batch | InvalidRecords:
    """One row, or what is wrong with it."""
    if line[-1:] != b"\n":
        return InvalidRecords(f"{place}: the file ends inside the line")
    label, *pairs = line.split(b" ")
    if len(pairs) != schema.field_size:
        return InvalidRecords(f"{place}: {len(pairs)} fields, the schema says {schema.field_size}")
    split = [pair.split(b":") for pair in pairs]
    try:
        with np.errstate(over="ignore"):
            ids = np.array([[int(number) for number, _ in split]], np.int64)
            values = np.array([[float(text) for _, text in split]], np.float32)
            batch = Batch(labels=np.array([float(label)], np.float32), ids=ids, values=values)
    except (ValueError, OverflowError):
        return InvalidRecords(f"{place}: not label id:value id:value ...; starts with {line[:40]!r}")
    try:
        check_batch(batch, schema, place)
    except InvalidRecords as error:
        return error
    return batch
