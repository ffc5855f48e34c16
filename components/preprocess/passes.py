"""Passes of an engine over all files: to find where time divides the rows, to fit a transform, to parse the rows."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.errors import InvalidRecords
from components.manifest import Source
from components.preprocess.config import PreprocessConfig
from components.preprocess.engine import Engine, Method
from components.preprocess.reading import check_rejects, readable
from components.preprocess.splits import boundary_of, check_times, last_day, time_text
from components.preprocess.tally import Tally
from components.preprocess.transform import Transform
from components.preprocess.worker import ChunkResult, Work
from components.records import Schema

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What is known when all rows are parsed: sources, counts, and rows by split and bucket."""

    sources: tuple[Source, ...]
    tally: Tally
    counts: NDArray[np.int64]


@dataclass(kw_only=True)
class _FileCounts:
    """Rows of a file that stay, negative ones that sampling left out, and rejected ones by reason."""

    rows: int = 0
    left_out: int = 0
    rejected: Counter[str] = field(default_factory=Counter)

    def add(self, result: ChunkResult) -> None:
        self.rows += result.rows
        self.left_out += result.left_out
        self.rejected += result.rejected


def with_boundary(config: PreprocessConfig, files: Sequence[Path], engine: Engine, work: Work) -> Work:
    """The work with the second from which on rows validate, where times divide them; the engine is at that work.

    Unless it is declared, all rows are read for it, because the last day is known only when all of them are.

    Raises:
        InvalidRecords: naming file and line or row of the first wrong one.
    """
    if config.split_by != "time":
        return work
    if config.split_boundary:
        found = boundary_of(config.split_boundary)
    else:
        _read(config, files, engine, "time")
        times = engine.times()
        assert times is not None, "files without rows are refused"
        found = last_day(times.latest)
        check_times(times, found, config.split_column)
        log.info("rows from %s on validate, the last day in column %s", time_text(found), config.split_column)
    return _taken(engine, replace(work, boundary=found))


def fitted(config: PreprocessConfig, files: Sequence[Path], engine: Engine, work: Work) -> Work:
    """The work with the transform of all training rows, which are read for it once; the engine is at that work.

    Raises:
        InvalidRecords: naming file and line or row of the first wrong one.
    """
    fitting = work.fitting
    assert fitting is not None
    _read(config, files, engine, "count")
    _check_times(config, engine, work)
    transform = fitting.fit(engine.counted())
    log.info("fitted the transform on %d training rows: %d ids", transform.rows, transform.feature_size)
    return _taken(engine, with_transform(work, transform))


def with_transform(work: Work, transform: Transform) -> Work:
    schema = Schema(field_size=transform.field_size, feature_size=transform.feature_size)
    return replace(work, transform=transform, schema=schema, fitting=None)


def _taken(engine: Engine, work: Work) -> Work:
    engine.take(work)
    return work


def gather(config: PreprocessConfig, files: Sequence[Path], engine: Engine, work: Work) -> Gathered:
    """Every row of every file, checked and with the engine.

    Raises:
        InvalidRecords: naming file and line or record of the first wrong row, or a file without rows; no row for a split.
    """
    sources = []
    with engine.digests(files) as digest_of:
        for path, found in zip(files, _read(config, files, engine, "parse"), strict=True):
            log.info("read %s: %d rows", path, found.rows)
            with readable(path):
                size, digest = path.stat().st_size, digest_of(path)
            sources.append(
                Source(
                    path=str(path),
                    bytes=size,
                    sha256=digest,
                    rows=found.rows,
                    rejected=dict(found.rejected),
                    left_out=found.left_out,
                )
            )
    _check_times(config, engine, work)
    tally, counts = engine.finished()
    return Gathered(sources=tuple(sources), tally=tally, counts=counts)


def _read(config: PreprocessConfig, files: Sequence[Path], engine: Engine, method: Method) -> list[_FileCounts]:
    """Every file through the workers."""
    counts = [_FileCounts() for _ in files]
    for result in engine.read(method, files):
        counts[result.file_index].add(result)
        check_rejects(config, result.first_reject, result.fatal, sum(each.rejected.total() for each in counts))
    for path, found in zip(files, counts, strict=True):
        if found.rows + found.left_out == 0:
            skipped = f"; {found.rejected.total()} rows were skipped" if found.rejected else ""
            raise InvalidRecords(f"{path}: no rows in it{skipped}; remove the file or send it again")
    return counts


def _check_times(config: PreprocessConfig, engine: Engine, work: Work) -> None:
    """Refuse times that are all on one side of the boundary."""
    times = engine.times()
    if times and work.boundary is not None:
        check_times(times, work.boundary, config.split_column)
