"""A dataset checked byte by byte against its manifest: every checksum, record, row and count, every file in the folder.

Nothing stops at the first damage: each is named, by file and record (line, where shards are text). A shard is one process's
work, and a block of its rows is in memory at a time.
"""

import hashlib
import io
import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from components.errors import InvalidRecords
from components.examples import decode_example
from components.framing import scan_framed
from components.libsvm import scan_lines
from components.manifest import MANIFEST, SPLITS, Manifest, read_manifest
from components.records import BLOCK_ROWS, Batch, Encoding, Schema, Shard, decode_block, row_problem, wrong_rows
from components.transforms import TRANSFORM
from components.workers import in_processes

log = logging.getLogger(__name__)

# What a dataset may hold beside its shards.
BESIDE = frozenset({MANIFEST, TRANSFORM})
PROGRESS_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Problems:
    """What is wrong with a dataset or a shard: the first sentences, and how many there are in all."""

    named: tuple[str, ...]
    count: int


class DigestingFile(io.RawIOBase):
    """A file whose digest and size are taken as it is read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self._digest = hashlib.sha256()
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        found = self._file.readinto(buffer) or 0
        self._digest.update(buffer[:found])
        self.size += found
        return found

    def rest(self) -> tuple[int, str]:
        """Size and SHA-256 of the whole file, of which the rest is read now."""
        while self.read(1 << 20):
            pass
        return self.size, self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()
        super().close()


def scan_rows(file: BinaryIO, name: str, schema: Schema, encoding: Encoding) -> Iterator[Batch | InvalidRecords]:
    """Valid rows of a shard in batches of at most BLOCK_ROWS, and in the place of a wrong row or record what is wrong with it."""
    if encoding == "libsvm":
        yield from scan_lines(file, name, schema)
    elif encoding == "blocks":
        yield from _scan_blocks(file, name, schema)
    else:
        yield from _scan_examples(file, name, schema)


def _scan_blocks(file: BinaryIO, name: str, schema: Schema) -> Iterator[Batch | InvalidRecords]:
    for record, payload in enumerate(scan_framed(file, name)):
        place = f"{name}, record {record}"
        if isinstance(payload, InvalidRecords):
            yield payload
            continue
        try:
            batch = decode_block(payload, place)
        except InvalidRecords as error:
            yield error
            continue
        if batch.ids.shape[1] != schema.field_size:
            yield InvalidRecords(f"{place}: {batch.ids.shape[1]} fields, the schema says {schema.field_size}")
            continue
        yield from _sorted_out(batch, schema, [f"{place}, row {row}" for row in range(len(batch))])


def _scan_examples(file: BinaryIO, name: str, schema: Schema) -> Iterator[Batch | InvalidRecords]:
    rows: list[tuple[float, list[int], list[float]]] = []
    places: list[str] = []

    def batch() -> Batch:
        labels, ids, values = zip(*rows, strict=True)
        return Batch(labels=np.array(labels, np.float32), ids=np.array(ids, np.int64), values=np.array(values, np.float32))

    for record, payload in enumerate(scan_framed(file, name)):
        place = f"{name}, record {record}"
        try:
            if isinstance(payload, InvalidRecords):
                raise payload
            label, ids, values = decode_example(payload, schema.field_size, place)
        except InvalidRecords as error:
            yield error
            continue
        rows.append((label, list(ids), list(values)))
        places.append(place)
        if len(rows) == BLOCK_ROWS:
            yield from _sorted_out(batch(), schema, places)
            rows, places = [], []
    if rows:
        yield from _sorted_out(batch(), schema, places)


def _sorted_out(batch: Batch, schema: Schema, places: list[str]) -> Iterator[Batch | InvalidRecords]:
    """The valid rows of a batch, and what is wrong with each of the others."""
    wrong = wrong_rows(batch, schema)
    for row in np.flatnonzero(wrong).tolist():
        yield InvalidRecords(f"{places[row]}: {row_problem(batch, row, schema)}")
    yield batch.rows(np.flatnonzero(~wrong)) if wrong.any() else batch


def verified_rows(dataset: Path, manifest: Manifest, shard: Shard) -> Iterator[Batch | InvalidRecords]:
    """The rows of a shard, and in the place of each damage what it is: first of its records, at the end of the file as a whole."""
    path = dataset / shard.path
    if not path.is_file():
        yield InvalidRecords(f"{path}: missing; the manifest lists it with {shard.examples} rows")
        return
    examples, positives, damaged = 0, 0, False
    with DigestingFile(path) as raw, io.BufferedReader(raw, 1 << 20) as file:
        for found in scan_rows(file, str(path), manifest.schema, manifest.encoding):
            if isinstance(found, InvalidRecords):
                damaged = True
            else:
                examples, positives = examples + len(found), positives + int(found.labels.sum())
            yield found
        size, sha256 = raw.rest()
    if size != shard.bytes:
        yield InvalidRecords(f"{path}: {size} bytes, the manifest says {shard.bytes}")
    if damaged:
        return  # that the rest is not as it should be goes without saying
    if (examples, positives) != (shard.examples, shard.positives):
        yield InvalidRecords(
            f"{path}: {examples} rows found, {positives} of them positive; the manifest says {shard.examples} and {shard.positives}"
        )
    elif size == shard.bytes and sha256 != shard.sha256:
        yield InvalidRecords(f"{path}: its SHA-256 differs from the manifest's; it was changed, or is the file of another dataset")


@dataclass(frozen=True, kw_only=True)
class _Task:
    dataset: Path
    manifest: Manifest
    shard: Shard
    most: int


def _verify_shard(task: _Task) -> Problems:
    named: list[str] = []
    count = 0
    for found in verified_rows(task.dataset, task.manifest, task.shard):
        if isinstance(found, InvalidRecords):
            count += 1
            if len(named) < task.most:
                named.append(str(found))
    return Problems(named=tuple(named), count=count)


def folder_problems(dataset: Path, manifest: Manifest) -> list[str]:
    """Files that the manifest does not list, and entries of the manifest that no reader would find."""
    listed = [(name, shard.path) for name in SPLITS for shard in manifest.split(name).shards]
    known = Counter(path for _, path in listed)
    problems = [f"{dataset / MANIFEST}: lists {path} {times} times" for path, times in known.items() if times > 1]
    problems += [
        f"{dataset / MANIFEST}: lists {path} for the {name} split; a shard lies in the folder {name}"
        for name, path in listed
        if Path(path).parts[:-1] != (name,) or Path(path).name in ("", "..")
    ]
    problems += [
        f"{path}: not listed by the manifest; remove it, or preprocess again"
        for path in sorted(dataset.rglob("*"))
        if not (path.is_dir() and not path.is_symlink())
        and str(path.relative_to(dataset)) not in known
        and str(path.relative_to(dataset)) not in BESIDE
    ]
    return problems


def verify_dataset(dataset: Path, processes: int, most: int = 20) -> tuple[Manifest, Problems]:
    """Check everything that the manifest says, and name the first `most` problems of the folder and of each shard.

    That splits add up to their shards is checked when the manifest is read.

    Raises:
        InvalidRecords: there is no manifest, or it is itself damaged.
    """
    manifest = read_manifest(dataset)
    shards = [shard for name in SPLITS for shard in manifest.split(name).shards]
    # The largest first, so that no process ends up alone with one.
    order = sorted(range(len(shards)), key=lambda index: -shards[index].bytes)
    tasks = [_Task(dataset=dataset, manifest=manifest, shard=shards[index], most=most) for index in order]
    by_shard: dict[int, Problems] = {}
    progress = Progress(sum(shard.bytes for shard in shards), sum(shard.examples for shard in shards))
    for task, problems in in_processes(_verify_shard, tasks, processes):
        by_shard[order[task]] = problems
        progress.add(shards[order[task]].bytes)
    parts = [by_shard[index] for index in range(len(shards))]
    folder = folder_problems(dataset, manifest)
    named = [*folder[:most], *(sentence for part in parts for sentence in part.named)]
    return manifest, Problems(named=tuple(named), count=len(folder) + sum(part.count for part in parts))


class Progress:
    """Logs how far work over shards is, not more often than every PROGRESS_S."""

    def __init__(self, total_bytes: int, rows: int) -> None:
        self._total, self._rows, self._done = max(total_bytes, 1), rows, 0
        self._began = self._said = time.monotonic()

    def add(self, size: int) -> None:
        self._done += size
        now = time.monotonic()
        if now - self._said >= PROGRESS_S and self._done < self._total:
            self._said, elapsed_s = now, now - self._began
            share = self._done / self._total
            left_s = elapsed_s * (1 - share) / share
            log.info("%.0f%% of the shards, %.0f rows/s, %.0f s left", 100 * share, share * self._rows / elapsed_s, left_s)
