"""Parquet files: their declared columns, a batch at a time; conform.py makes raw rows of them. Rows are counted from 0."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from components.errors import InvalidRecords
from components.preprocess.chunks import GZIP_MAGIC
from components.preprocess.columns import Columns
from components.preprocess.conform import check_types
from components.preprocess.kinds import kind_of_file, shown

BATCH_ROWS = 16_384
_MAGIC = b"PAR1"


def parquet_schema(path: Path) -> pa.Schema:
    """The Arrow schema of a file, from its footer.

    Raises:
        InvalidRecords: not a Parquet file, cut off, or damaged.
    """
    with path.open("rb") as file:
        head = file.read(512)
        size = file.seek(0, 2)
        file.seek(max(size - 4, 0))
        tail = file.read(4)
    if not head.startswith(_MAGIC):
        kind = "gzip-compressed, decompress it first" if head.startswith(GZIP_MAGIC) else kind_of_file(head)
        looks = f"this looks like {kind}" if kind else f"it starts with {shown(head[:12])}"
        raise InvalidRecords(f"{path}: not a Parquet file; {looks}")
    if tail != _MAGIC or size < 12:
        raise InvalidRecords(f"{path}: the Parquet file is cut off ({size} bytes, no footer at its end); send it again")
    try:
        schema = pyarrow.parquet.read_schema(path)
        str(schema)  # decodes all names, which is where damage to them shows
        return schema
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidRecords(f"{path}: damaged Parquet footer ({_one_line(error)}); send it again") from error


def check_same_schema(first: pa.Schema, first_path: Path, path: Path, columns: Columns) -> None:
    """Refuse a file whose declared columns have other types than those of the first file.

    Raises:
        InvalidRecords: naming both files, the column and both types.
    """
    found = parquet_schema(path)
    columns.check_header(found.names, str(path))
    for name in columns.read:
        if (old := first.field(name).type) != (new := found.field(name).type):
            raise InvalidRecords(f"{path}: column {name!r} is {new}, but {old} in {first_path}; write all files with one schema")


def read_batches(path: Path, columns: Columns) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The declared columns of one file in batches of at most BATCH_ROWS, each with the number of its first row, for `conform`.

    Raises:
        InvalidRecords: not a Parquet file, damaged, or columns of other names or types than declared.
    """
    check_types(parquet_schema(path), columns, str(path))
    row = 0
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(columns.read), use_threads=False):
                yield row, batch
                row += batch.num_rows
            _check_rows(file.metadata, row, path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidRecords(f"{path}: damaged Parquet data after {row} rows ({_one_line(error)}); send it again") from error


def _check_rows(metadata: pyarrow.parquet.FileMetaData, read: int, path: Path) -> None:
    """A footer has no checksum; but it says in three places how many rows there are, and pyarrow looks at one."""
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    counted = sum(group.num_rows for group in groups)
    # A list has a value an entry, so that only columns without lists can be counted.
    flat = [index for index in range(metadata.num_columns) if metadata.schema.column(index).max_repetition_level == 0]
    values = {sum(group.column(index).num_values for group in groups) for index in flat}
    if {metadata.num_rows, counted, *values} != {read}:
        raise InvalidRecords(f"{path}: damaged Parquet footer ({read} rows read, {metadata.num_rows} declared); send it again")


def _one_line(error: Exception) -> str:
    """What pyarrow says, in which bytes of a damaged file may stand."""
    return "".join(letter if letter.isprintable() else " " for letter in str(error)[:200]).strip()
