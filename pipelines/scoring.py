"""`ctrflow score`: raw rows through the transform that was saved with a model, and through the model.

    row,probability
    1,0.0312
    2,
    3,0.411

Rows count from 1 over all files in their order. A bad row that is skipped has no probability. Labels that stand in the files are
passed over.
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.model_files import Scorer, load_scorer, read_model
from components.preprocess.config import PreprocessConfig
from components.preprocess.in_order import Part, parts_in_order, reading_of_columns, reading_of_ids
from components.preprocess.lines import input_files
from components.preprocess.progress import Progress
from components.preprocess.settings import columns_text
from components.preprocess.staging import staged
from components.preprocess.transform_file import read_transform
from components.preprocess.worker import Reading
from components.records import Batch, Schema
from components.transforms import TRANSFORM

log = logging.getLogger(__name__)

# Their embedding rows are in memory together.
ROWS_AT_ONCE = 8192
HEADER = "row,probability\n"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Opened input of a model: what there is to read, and how."""

    config: PreprocessConfig
    reading: Reading
    files: tuple[Path, ...]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """How many rows were scored, and skipped."""

    rows: int
    skipped: int


def open_source(model: Path, inputs: Sequence[str], reading_options: Mapping[str, Any], scratch: Path) -> Source:
    """The input of a model, by what the model was trained on.

    Args:
        scratch: a folder for what is fetched from s3://, to be kept until all is scored.
        reading_options: the fields of PreprocessConfig that say how raw rows are written, by name.
    Raises:
        NotPromotable: the model folder is incomplete or damaged.
        InvalidConfig: the model was trained on rows of another kind.
        InvalidRecords: nothing to read, or a file without the columns.
    """
    card, source_format = read_model(model), reading_options["format"]
    files = tuple(staged(input_files(inputs), scratch))
    if (model / TRANSFORM).is_file():
        transform = read_transform(model / TRANSFORM)
        columns = columns_text(transform.columns) if source_format in ("csv", "parquet", "tfrecord") else ""
        config = PreprocessConfig(**reading_options, columns=columns)
        if not config.is_table:
            raise InvalidConfig(f"format {source_format}: {model} was trained on columns; give criteo, csv, parquet or tfrecord")
        return Source(config=config, reading=reading_of_columns(config, files, transform), files=files)
    if source_format in ("criteo", "csv", "parquet"):
        raise InvalidConfig(f"format {source_format}: {model} has no {TRANSFORM}: it was trained on ids; give their format")
    schema = Schema(field_size=card.field_size, feature_size=card.feature_size, id_base=card.id_base)
    config = PreprocessConfig(**reading_options, id_base=card.id_base)
    return Source(config=config, reading=reading_of_ids(config, schema), files=files)


def score_rows(model: Path, source: Source, out: TextIO) -> Scored:
    """Write a line a row, part by part.

    Raises:
        InvalidRecords: naming file and line or record of a wrong row, or a model whose scores are no probabilities.
    """
    rows, rejected = 0, Counter[str]()
    scorer: Scorer | None = None
    progress = Progress(source.files)
    out.write(HEADER)
    for part in parts_in_order(source.config, source.reading, source.files):
        # Only now, because TensorFlow takes seconds to load, and many a file is refused by its first rows.
        scorer = scorer or load_scorer(model)
        out.writelines(_lines(part, _probabilities(scorer, part.rows, model), rows))
        rows += len(part.fine)
        rejected.update(reject.reason for reject in part.rejects)
        progress.add(part.file_index, part.offset, len(part.rows))
    if rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))
        log.warning("%d bad rows have no probability (%s)", rejected.total(), reasons)
    return Scored(rows=rows - rejected.total(), skipped=rejected.total())


def _probabilities(scorer: Scorer, rows: Batch, model: Path) -> NDArray[np.float64]:
    """Click probabilities float64 [B]."""
    starts = range(0, len(rows), ROWS_AT_ONCE)
    parts = [rows.rows(slice(start, start + ROWS_AT_ONCE)) for start in starts]
    found = np.concatenate([np.empty(0), *(scorer(part.ids, part.values) for part in parts)])
    if not ((found >= 0.0) & (found <= 1.0)).all():
        raise InvalidRecords(f"{model}: scores that are no probabilities in 0..1; train again")
    return found


def _lines(part: Part, probabilities: NDArray[np.float64], rows_before: int) -> Iterator[str]:
    # 9 digits tell every float32 from its neighbours.
    scores = iter(probabilities.tolist())
    for row, fine in enumerate(part.fine.tolist(), rows_before + 1):
        yield f"{row},{next(scores):.9g}\n" if fine else f"{row},\n"
