"""LibSVM text as a dataset's own encoding: `label id:value id:value ...`, a row a line, ids from 0 in the order of fields.

What other tools write is read by components/preprocess/libsvm.py, which forgives what is legal; here every line is as
`encode_lines` writes it, and what differs is damage.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

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
        first = 1
        while lines := list(islice(file, BLOCK_ROWS)):
            batch = _parse(lines, schema)
            if batch is None:
                _name_damage(lines, schema, path, first)
            else:
                yield batch
            first += len(lines)


def _parse(lines: list[bytes], schema: Schema) -> Batch | None:
    """All rows at once; None when something is wrong with one of them."""
    rows, fields = len(lines), schema.field_size
    words = b" ".join(lines).replace(b":", b" ").split()
    if len(words) != rows * (1 + 2 * fields) or any(line.count(b":") != fields or line[-1:] != b"\n" for line in lines):
        return None
    grid: NDArray[np.object_] = np.array(words, dtype=object).reshape(rows, 1 + 2 * fields)
    try:
        labels, ids, values = grid[:, 0].astype(np.float32), grid[:, 1::2].astype(np.int64), grid[:, 2::2].astype(np.float32)
        batch = Batch(labels=labels, ids=ids, values=values)
        check_batch(batch, schema, "")
    except (ValueError, OverflowError, InvalidRecords):
        return None
    return batch


def _name_damage(lines: list[bytes], schema: Schema, path: Path, first: int) -> None:
    """Raise for the first line that is wrong."""
    for number, line in enumerate(lines, first):
        place = f"{path}, line {number}"
        if line[-1:] != b"\n":
            raise InvalidRecords(f"{place}: the file ends inside the line")
        label, *pairs = line.split(b" ")
        if len(pairs) != schema.field_size:
            raise InvalidRecords(f"{place}: {len(pairs)} fields, the schema says {schema.field_size}")
        split = [pair.split(b":") for pair in pairs]
        try:
            ids = np.array([[int(name) for name, _ in split]], np.int64)
            values = np.array([[float(text) for _, text in split]], np.float32)
            batch = Batch(labels=np.array([float(label)], np.float32), ids=ids, values=values)
        except (ValueError, OverflowError):
            raise InvalidRecords(f"{place}: not label id:value id:value ...; starts with {line[:40]!r}") from None
        check_batch(batch, schema, place)
