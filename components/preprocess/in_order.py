"""Raw rows as ids and values in the order of their files, by a transform or table size that is known: for scoring.

Nothing is fitted, split, shuffled or stored. A part is what one chunk holds (chunks.py), so memory does not depend on the input.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidConfig
from components.preprocess.config import PreprocessConfig
from components.preprocess.delimited import Delimited
from components.preprocess.libffm import FieldLayout
from components.preprocess.parsed import Reject
from components.preprocess.reading import check_rejects, chunks_of, readable
from components.preprocess.tables import open_table
from components.preprocess.transform import Transform
from components.preprocess.worker import Reading, parser_of
from components.records import Batch, Schema


@dataclass(frozen=True, kw_only=True)
class Part:
    """Rows that follow one another in a file.

    Attributes:
        rows: those that are fine; labels mean nothing where the source need not have any.
        fine: of all rows of the part, in their order, which these are, bool [B + refused].
        rejects: what was wrong with the others.
        file_index, offset: which file it is of, and how many bytes of that were read.
    """

    rows: Batch
    fine: NDArray[np.bool_]
    rejects: tuple[Reject, ...]
    file_index: int
    offset: int


def reading_of_columns(config: PreprocessConfig, files: Sequence[Path], transform: Transform) -> Reading:
    """How files of columns are read that a fitted transform makes ids and values of; they need no label.

    Raises:
        InvalidRecords: a file that lacks a column.
    """
    columns = transform.columns.unlabelled()
    with readable(*files):
        table = open_table(columns, config.format, Delimited(separator=config.separator, names=config.names), list(files))
    schema = Schema(field_size=transform.field_size, feature_size=transform.feature_size)
    return Reading(format=config.format, schema=schema, skip=config.on_bad_row == "skip", table=table, transform=transform)


def reading_of_ids(config: PreprocessConfig, schema: Schema) -> Reading:
    """How files are read whose rows hold the ids of a table that is known; labels are told apart from ids by standing first."""
    reading = Reading(format=config.format, schema=schema, skip=config.on_bad_row == "skip")
    if config.format != "libffm":
        return reading
    fields, left = divmod(schema.field_size, config.values_per_field)
    if left:
        raise InvalidConfig(
            f"values_per_field {config.values_per_field}: rows have {schema.field_size} places; give that of the dataset"
        )
    layout = FieldLayout(fields=fields, field_base=config.field_base, values_per_field=config.values_per_field)
    return Reading(format=reading.format, schema=schema, skip=reading.skip, layout=layout)


def parts_in_order(config: PreprocessConfig, reading: Reading, files: Sequence[Path]) -> Iterator[Part]:
    """All rows of all files.

    Raises:
        InvalidRecords: naming file and line or record of a wrong row, unless such are skipped, and not too many.
    """
    parse, bad = parser_of(reading), 0
    for chunk in chunks_of(reading.format, files, reading.table):
        parsed = parse(chunk)
        bad += len(parsed.rejects)
        check_rejects(config, parsed.rejects[0].message if parsed.rejects else "", parsed.fatal, bad)
        refused = np.array([reject.number for reject in parsed.rejects], np.int64)
        order = np.argsort(np.concatenate([parsed.numbers, refused]), kind="stable")
        yield Part(
            rows=parsed.batch,
            fine=order < len(parsed.numbers),
            rejects=parsed.rejects,
            file_index=chunk.file_index,
            offset=chunk.offset,
        )
