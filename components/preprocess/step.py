"""Raw click logs into a dataset: parse, validate, encode, shuffle, split, write shards, manifest last.

All rows are held in memory while they are shuffled: at the peak about 36 bytes a field and row.
"""

import logging
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords
from components.examples import peek_field_size, read_examples
from components.images import VERSION
from components.manifest import MANIFEST, Manifest, Source, Split, SplitName, Statistics, write_manifest
from components.preprocess.criteo import DEFAULT_FEATURE_SIZE, FIELD_SIZE, CriteoReader
from components.preprocess.libsvm import LARGEST_TABLE, peek_pairs, read_libsvm, repeated_ids
from components.preprocess.lines import file_digest, input_files
from components.preprocess.report import dataset_report
from components.records import ENCODINGS, SUFFIXES, Batch, Encoding, Schema, concatenate, write_shard
from components.reports import write_report
from components.storage import check_replaceable, publish_folder

log = logging.getLogger(__name__)

Format = Literal["criteo", "libsvm", "tfrecord"]
FORMATS: tuple[Format, ...] = get_args(Format)


@dataclass(frozen=True, kw_only=True)
class PreprocessConfig:
    """What the source is and what to write.

    `field_size` and `feature_size` 0 mean: take them from the data (criteo: 39 fields, a hashed table of 200,000 ids).
    """

    format: Format
    field_size: int = 0
    feature_size: int = 0
    id_base: int = 0
    validation_fraction: float = 0.1
    seed: int = 0
    encoding: Encoding = "blocks"
    shards: int = 4

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidConfig(f"format {self.format!r} is none of {', '.join(FORMATS)}")
        if self.encoding not in ENCODINGS:
            raise InvalidConfig(f"encoding {self.encoding!r} is none of {', '.join(ENCODINGS)}")
        if not 0.0 < self.validation_fraction < 1.0:
            raise InvalidConfig(f"validation_fraction {self.validation_fraction}: must be between 0 and 1")
        if self.shards < 1:
            raise InvalidConfig(f"shards {self.shards}: at least 1 is needed")
        for name in ("field_size", "feature_size", "seed"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} {getattr(self, name)}: must not be negative")
        # Checks the ranges that Schema knows, before any file is read.
        Schema(field_size=self.field_size or 1, feature_size=self.feature_size or 1, id_base=self.id_base)
        if self.format == "criteo" and self.id_base:
            raise InvalidConfig("id_base 1: criteo rows hold no ids; leave --id-base out")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """All rows of all sources, the schema they fit, and what the reader noticed."""

    batch: Batch
    schema: Schema
    sources: tuple[Source, ...]
    missing: int
    warnings: tuple[str, ...]


def read_rows(config: PreprocessConfig, files: Sequence[Path]) -> Rows:
    """Every row of every file, checked.

    Raises:
        InvalidRecords: naming file and line or record of the first wrong row, or a file without rows.
    """
    field_size = config.field_size or _field_size_of(config.format, files[0])
    default_table = DEFAULT_FEATURE_SIZE if config.format == "criteo" else LARGEST_TABLE
    reading = Schema(field_size=field_size, feature_size=config.feature_size or default_table, id_base=config.id_base)
    criteo = CriteoReader(reading) if config.format == "criteo" else None
    batches: list[Batch] = []
    sources: list[Source] = []
    for path in files:
        before = len(batches)
        batches += _batches(config.format, criteo, path, reading)
        rows = sum(len(batch) for batch in batches[before:])
        if rows == 0:
            raise InvalidRecords(f"{path}: no rows in it; remove the file or send it again")
        log.info("read %s: %d rows", path, rows)
        sources.append(Source(path=str(path), bytes=path.stat().st_size, sha256=file_digest(path), rows=rows))
    batch = concatenate(batches, field_size)
    schema, warnings = reading, [*_repeated_sources(sources), *_id_warnings(config, batch)]
    if reading.feature_size == LARGEST_TABLE and not config.feature_size:
        feature_size = int(batch.ids.max()) + 1
        schema = Schema(field_size=field_size, feature_size=feature_size, id_base=config.id_base)
        warnings.append(
            f"feature_size {feature_size} was taken from the largest id of this data; "
            "give --feature-size to keep it the same from day to day"
        )
    if criteo and criteo.completed_rows:
        warnings.append(f"{criteo.completed_rows} rows had fewer than 40 columns; the cells at their end were taken as missing")
    missing = criteo.missing_cells if criteo else 0
    return Rows(batch=batch, schema=schema, sources=tuple(sources), missing=missing, warnings=tuple(warnings))


def _field_size_of(source_format: Format, path: Path) -> int:
    """Fields of a row, from the first row of the first file."""
    if source_format == "criteo":
        return FIELD_SIZE
    return peek_pairs(path) if source_format == "libsvm" else peek_field_size(path)


def _batches(source_format: Format, criteo: CriteoReader | None, path: Path, schema: Schema) -> Iterator[Batch]:
    if criteo:
        return criteo.read(path)
    return read_libsvm(path, schema) if source_format == "libsvm" else read_examples(path, schema, schema.id_base)


def _id_warnings(config: PreprocessConfig, batch: Batch) -> list[str]:
    """What ids of the source let suspect; hashed ones of criteo say nothing."""
    if config.format == "criteo":
        return []
    warnings = []
    if config.id_base == 0 and batch.ids.min() == 1:
        warnings.append("the smallest id is 1: if the ids of this source start at 1, give --id-base 1")
    if repeated := int(repeated_ids(batch.ids, batch.values).sum()):
        warnings.append(f"{repeated} rows hold an id more than once; it counts once for each field")
    return warnings


def _repeated_sources(sources: Sequence[Source]) -> list[str]:
    """A sentence for every file that is a copy of an earlier one."""
    first: dict[str, str] = {}
    return [
        f"{source.path} is a copy of {first[source.sha256]}: its rows count twice and may stand in both splits"
        for source in sources
        if first.setdefault(source.sha256, source.path) != source.path
    ]


def row_hashes(batch: Batch) -> NDArray[np.uint64]:
    """A 64-bit hash of each row [B]; equal rows have equal hashes, and others differ but for one pair in 2^64."""
    multipliers = np.random.default_rng(0x5EED).integers(1, 2**63, 2 * batch.ids.shape[1] + 1, dtype=np.uint64) * np.uint64(2)
    multipliers += np.uint64(1)
    mixed: NDArray[np.uint64] = batch.labels.astype(np.uint64) * multipliers[0]
    for field in range(batch.ids.shape[1]):
        for offset, column in ((1, batch.ids[:, field].astype(np.uint64)), (2, batch.values[:, field].view(np.uint32))):
            # Rotating between columns keeps low bits from meeting only low bits.
            mixed = (mixed << np.uint64(23) | mixed >> np.uint64(41)) ^ column * multipliers[2 * field + offset]
            mixed *= np.uint64(0x9E3779B97F4A7C15)
    return mixed


def split_rows(batch: Batch, fraction: float, seed: int) -> tuple[Batch, Batch]:
    """Train and validation rows, both shuffled: the same rows, fraction and seed give the same answer.

    Raises:
        InvalidRecords: fewer than two rows.
    """
    if len(batch) < 2:
        raise InvalidRecords(f"{len(batch)} rows in all: at least 2 are needed, one to train and one to validate")
    order = np.random.default_rng(seed).permutation(len(batch))
    held_out = min(max(round(len(batch) * fraction), 1), len(batch) - 1)
    return batch.rows(order[held_out:]), batch.rows(order[:held_out])


def one_class_warnings(train: Batch, validation: Batch) -> list[str]:
    parts = {"train": train, "validation": validation}
    return [
        f"the {name} split has only {'positive' if part.labels[0] else 'negative'} rows ({len(part)}): AUC is undefined on it"
        for name, part in parts.items()
        if part.labels.min() == part.labels.max()
    ]


def write_split(folder: Path, name: SplitName, rows: Batch, shards: int, encoding: Encoding) -> Split:
    """Rows of a split as files whose sizes differ by at most one row; never an empty file."""
    (folder / name).mkdir()
    count = min(shards, len(rows))
    edges = [len(rows) * index // count for index in range(count + 1)]
    written = tuple(
        write_shard(
            folder / name / f"part-{index:05d}{SUFFIXES[encoding]}", rows.rows(slice(edges[index], edges[index + 1])), encoding
        )
        for index in range(count)
    )
    return Split(examples=len(rows), positives=int(rows.labels.sum()), shards=written)


def preprocess(config: PreprocessConfig, inputs: Sequence[str], out: Path, report: Path) -> Manifest:
    """Write the dataset `out` and its report; nothing is left when it fails.

    Args:
        inputs: paths, folders or globs.
    Raises:
        InvalidRecords: missing, empty, damaged or malformed input, named with file and line or record.
    """
    if report.is_dir():
        raise InvalidConfig(f"{report}: is a folder; name the file for the report")
    check_replaceable(out, marker=MANIFEST)
    files = input_files(inputs)
    for path in files:
        if path.resolve().is_relative_to(out.resolve()):
            raise InvalidConfig(f"{out}: holds the input {path}, which the new dataset would replace; choose another folder")
    try:
        rows = read_rows(config, files)
    except OSError as error:
        raise InvalidRecords(f"{error.filename or files[0]}: cannot be read ({error.strerror or error})") from error
    train, validation = split_rows(rows.batch, config.validation_fraction, config.seed)
    repeats = int(np.isin(row_hashes(validation), row_hashes(train)).sum())
    warnings = [*rows.warnings, *one_class_warnings(train, validation)]
    if repeats:
        warnings.append(f"{repeats} of {len(validation)} validation rows also stand in train: AUC on them flatters the model")
    with publish_folder(out, marker=MANIFEST) as work:
        manifest = Manifest(
            encoding=config.encoding,
            schema=rows.schema,
            train=write_split(work, "train", train, config.shards, config.encoding),
            validation=write_split(work, "validation", validation, max(config.shards // 4, 1), config.encoding),
            statistics=Statistics(
                smallest_id=int(rows.batch.ids.min()),
                largest_id=int(rows.batch.ids.max()),
                smallest_value=float(rows.batch.values.min()),
                largest_value=float(rows.batch.values.max()),
                missing=rows.missing,
                click_rate=float(rows.batch.labels.mean()),
                distinct_ids_by_field=tuple(len(np.unique(column)) for column in rows.batch.ids.T),
                validation_rows_in_train=repeats,
            ),
            sources=rows.sources,
            warnings=tuple(warnings),
            versions={"ctrflow": VERSION, "python": platform.python_version(), "numpy": np.__version__},
        )
        write_manifest(work, manifest)
    for warning in manifest.warnings:
        log.warning("%s", warning)
    write_report(report, dataset_report(manifest))
    return manifest
