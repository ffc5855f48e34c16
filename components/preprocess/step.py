"""Raw click logs into a dataset: files, chunks, rows in buckets by key, shards in the order of keys, manifest last.

The order of things, whatever does the work (engine.py): rows are parsed and checked, put in the order of their keys, and written as
shards. No step holds all rows.
"""

import errno
import logging
import platform
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidConfig, InvalidRecords, WorkflowError
from components.images import VERSION
from components.manifest import MANIFEST, SPLITS, HeldOut, Manifest, Split, SplitName, write_manifest
from components.preprocess.bounds import MemoryPlan, memory_bound, processes_for
from components.preprocess.collisions import with_collisions
from components.preprocess.config import CHAMPION, PreprocessConfig
from components.preprocess.delimited import Delimited
from components.preprocess.engine import Engine, OpenEngine, one_machine
from components.preprocess.fitting import Fitting, TransformConfig, nothing_counted
from components.preprocess.growing import check_growth
from components.preprocess.libffm import FieldLayout
from components.preprocess.lines import input_files
from components.preprocess.passes import Gathered, fitted, gather, with_boundary, with_transform
from components.preprocess.reading import field_size_of, readable
from components.preprocess.remarks import dataset_warnings, one_class_warnings
from components.preprocess.report import dataset_report
from components.preprocess.shard_counts import shard_count
from components.preprocess.sources import former_sources, source_changes
from components.preprocess.splits import time_text
from components.preprocess.staging import staged
from components.preprocess.tables import open_table
from components.preprocess.tally import statistics_of
from components.preprocess.transform_file import read_transform, write_transform
from components.preprocess.worker import ShardTask, Work
from components.records import LARGEST_TABLE, SUFFIXES, Encoding, Schema
from components.reports import write_report
from components.storage import check_replaceable, publish_folder
from components.transforms import TRANSFORM

log = logging.getLogger(__name__)


def shard_tasks(work: Path, name: SplitName, counts: NDArray[np.int64], shards: int, encoding: Encoding) -> list[ShardTask]:
    """The files of a split, whose sizes differ by at most one row; never an empty file."""
    (work / name).mkdir()
    rows = int(counts.sum())
    count = min(shards, rows)
    edges = [rows * index // count for index in range(count + 1)]
    return [
        ShardTask(
            path=work / name / f"part-{index:05d}{SUFFIXES[encoding]}",
            split=name,
            start=edges[index],
            stop=edges[index + 1],
            counts=counts.tolist(),
        )
        for index in range(count)
    ]


def write_splits(config: PreprocessConfig, work: Path, engine: Engine, counts: NDArray[np.int64]) -> dict[SplitName, Split]:
    """All shards of both splits."""
    train = config.shards or shard_count(int(counts[0].sum()), config.workers)
    shards = {"train": train, "validation": max(train // 4, 1)}
    tasks = [
        task for index, name in enumerate(SPLITS) for task in shard_tasks(work, name, counts[index], shards[name], config.encoding)
    ]
    written = list(zip(tasks, engine.write(tasks), strict=True))
    splits = {}
    for name in SPLITS:
        own = tuple(shard for task, shard in written if task.split == name)
        splits[name] = Split(
            examples=sum(shard.examples for shard in own), positives=sum(shard.positives for shard in own), shards=own
        )
    return splits


@contextmanager
def scratch_folder(out: Path) -> Iterator[Path]:
    """A folder on the disk of the output that vanishes with the block.

    Raises:
        WorkflowError: the disk is full, which what writes to an open file does not say of which.
    """
    parent = next(folder for folder in out.absolute().parents if folder.exists())
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=f".{out.name}.scratch."))
    try:
        yield folder
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        where = error.filename or out
        raise WorkflowError(f"{where}: {error.strerror}; free some space, or choose a folder on another disk") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def work_of(config: PreprocessConfig, field_size: int, input_bytes: int, scratch: Path, memory: MemoryPlan) -> Work:
    schema = Schema(field_size=field_size, feature_size=config.feature_size or LARGEST_TABLE, id_base=config.id_base)
    return Work(
        format=config.format,
        schema=schema,
        seed=config.seed,
        validation_fraction=config.held_out,
        encoding=config.encoding,
        skip=config.on_bad_row == "skip",
        scratch=scratch,
        bits=memory.bits(input_bytes),
        limit_rows=memory.limit_rows(field_size),
        split=config.split,
        negative_rate=config.negative_rate,
    )


def table_work(config: PreprocessConfig, files: list[Path], input_bytes: int, scratch: Path, memory: MemoryPlan) -> Work:
    """The work on a table, with its transform, or with the fitting of one that rows decide."""
    columns = config.table_columns
    if config.split_by == "hash" and config.split_column in columns.numeric:
        raise InvalidConfig(
            f"columns: split {config.split_column!r} is numeric; its text is needed, make it categorical or ignored"
        )
    read = replace(columns, split=config.split_column or None)
    form = Delimited(separator=config.separator, names=config.names)
    with readable(*files):
        table = open_table(read, config.format, form, files)
    work = replace(work_of(config, columns.field_size, input_bytes, scratch, memory), table=table)
    if config.transform:
        if config.transform == CHAMPION:
            raise InvalidConfig("transform champion: a run of the pipeline knows the store; here give the file of its model folder")
        transform = read_transform(Path(config.transform))
        if not transform.fits(columns):
            raise InvalidConfig(f"{config.transform}: was fitted for other columns; give those of its dataset, or fit another one")
        if not config.grow_to:
            return with_transform(work, transform)
        check_growth(transform, config.grow_to, config.transform)
        counting = TransformConfig(categories="vocabulary", min_count=config.fitting.min_count)
        return replace(work, fitting=Fitting(columns=transform.columns, config=counting, growing=transform, grow_to=config.grow_to))
    fitting = Fitting(columns=columns, config=config.table_fitting)
    return replace(work, fitting=fitting) if fitting.counts_rows else with_transform(work, fitting.fit(nothing_counted(columns)))


def preprocess(
    config: PreprocessConfig,
    inputs: Sequence[str],
    out: Path,
    report: Path,
    memory_bytes: int | None = None,
    open_engine: OpenEngine | None = None,
) -> Manifest:
    """Write the dataset `out` and its report; nothing is left when it fails.

    Args:
        inputs: paths, folders or globs, local or s3://.
        memory_bytes: what rows may take in memory; None for the smaller of 1 GiB and a quarter of the container.
        open_engine: what does the work; None for processes of this machine.
    Raises:
        InvalidRecords: missing, empty, damaged or malformed input, named with file and line or record.
    """
    if report.is_dir():
        raise InvalidConfig(f"{report}: is a folder; name the file for the report")
    check_replaceable(out, marker=MANIFEST)
    found = input_files(inputs)
    for path in found:
        if isinstance(path, Path) and path.resolve().is_relative_to(out.resolve()):
            raise InvalidConfig(f"{out}: holds the input {path}, which the new dataset would replace; choose another folder")
    former = former_sources(out)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder(out))
        files = staged(found, scratch)
        input_bytes = sum(path.stat().st_size for path in files)
        processes = config.processes or processes_for(input_bytes)
        memory = MemoryPlan(bytes=memory_bytes or memory_bound(), processes=processes)
        if config.is_table:
            work = table_work(config, files, input_bytes, scratch, memory)
        else:
            with readable(files[0]):
                field_size = config.field_size or field_size_of(config.format, files[0], config.field_base)
            layout = FieldLayout(fields=field_size, field_base=config.field_base, values_per_field=config.values_per_field)
            work = work_of(config, layout.field_size, input_bytes, scratch, memory)
            work = replace(work, layout=layout) if config.format == "libffm" else work
        engine = stack.enter_context((open_engine or partial(one_machine, processes=processes))(work))
        work = with_boundary(config, files, engine, work)
        if work.fitting:
            work = fitted(config, files, engine, work)
        gathered = gather(config, files, engine, work)
        if work.transform and not config.transform:
            work = replace(work, transform=with_collisions(work.transform, gathered.tally.tokens))
        manifest = write_dataset(config, gathered, work, engine, out)
    for warning in manifest.warnings:
        log.warning("%s", warning)
    # Of this run and not of the dataset, whose bytes must not depend on what it replaced.
    if former is not None and (changes := source_changes(former, manifest.sources)):
        log.warning("%s", changes)
    write_report(report, dataset_report(manifest))
    return manifest


def fill_splits(config: PreprocessConfig, gathered: Gathered, engine: Engine) -> None:
    """Give an empty split the one row that is nearest to it, where rows are drawn one by one.

    Raises:
        InvalidRecords: fewer than two rows; a split that may not be filled so.
    """
    counts, rows = gathered.counts, gathered.tally.rows
    left_out = sum(source.left_out for source in gathered.sources)
    for index, name in enumerate(SPLITS):
        if counts[index].sum():
            continue
        if left_out and name == "train":
            raise InvalidRecords(f"no row is left to train: {left_out} negative ones were left out; raise --negative-rate")
        if config.split_by == "hash":
            raise InvalidRecords(
                f"column {config.split_column}: no row is left to {'train' if name == 'train' else 'validate'}, because too few "
                "texts stand in it; change --validation-fraction, or divide by another column"
            )
        if rows < 2:
            raise InvalidRecords(f"{rows} rows in all: at least 2 are needed, one to train and one to validate")
        engine.move_one(counts, SPLITS[1 - index])


def how_held_out(work: Work) -> HeldOut:
    """What the manifest says of the split."""
    return HeldOut(
        by=work.split.by,
        fraction=None if work.split.by == "time" else work.validation_fraction,
        column=work.split.column or None,
        boundary=None if work.boundary is None else time_text(work.boundary),
    )


def write_dataset(config: PreprocessConfig, gathered: Gathered, work: Work, engine: Engine, out: Path) -> Manifest:
    """Shards of what was gathered, and the manifest last.

    Raises:
        InvalidRecords: fewer than two rows, or none to train or to validate.
    """
    tally, counts, schema = gathered.tally, gathered.counts, work.schema
    fill_splits(config, gathered, engine)
    if config.holds_ids and not config.feature_size:
        schema = replace(schema, feature_size=tally.largest_id + 1)
    with publish_folder(out, marker=MANIFEST) as folder:
        splits = write_splits(config, folder, engine, counts)
        repeats = engine.repeats()
        warnings = [*dataset_warnings(config, gathered.sources, tally, schema.feature_size), *one_class_warnings(splits)]
        if repeats:
            held_out = splits["validation"].examples
            warnings.append(f"{repeats} of {held_out} validation rows also stand in train: AUC on them flatters the model")
        manifest = Manifest(
            encoding=config.encoding,
            schema=schema,
            train=splits["train"],
            validation=splits["validation"],
            statistics=statistics_of(tally, work.transform, repeats),
            held_out=how_held_out(work),
            negative_sampling_rate=config.negative_rate,
            sources=gathered.sources,
            warnings=tuple(warnings),
            versions={"ctrflow": VERSION, "python": platform.python_version(), "numpy": np.__version__},
        )
        if work.transform:
            write_transform(folder / TRANSFORM, work.transform)
        write_manifest(folder, manifest)
    return manifest
