"""A dataset written again in another encoding, or in another number of shards: the same rows in the same order.

Every shard is verified as it is read. The work is cut where an old and a new shard end at the same row. Each part is one process's
work, and a few blocks of its rows are in memory at a time.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path

from components.errors import InvalidConfig, InvalidRecords
from components.manifest import MANIFEST, SPLITS, Manifest, Split, SplitName, read_manifest, write_manifest
from components.records import SUFFIXES, Batch, Encoding, Shard, write_stream
from components.storage import check_replaceable, publish_folder
from components.verification import BESIDE, Progress, verified_rows
from components.workers import in_processes


@dataclass(frozen=True, kw_only=True)
class Part:
    """Old shards of a split, and the new ones that hold exactly their rows: file names and rows of each."""

    split: SplitName
    old: tuple[Shard, ...]
    new: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class _Task:
    dataset: Path
    manifest: Manifest
    encoding: Encoding
    work: Path
    part: Part


def divide(split: SplitName, shards: Sequence[Shard], sizes: Sequence[int], encoding: Encoding) -> list[Part]:
    """Parts as small as they can be: each ends where an old and a new shard end at the same row.

    Args:
        sizes: rows of each new shard; together as many as the old ones hold.
    """
    old_ends = list(accumulate(shard.examples for shard in shards))
    new_ends = list(accumulate(sizes))
    names = [f"part-{index:05d}{SUFFIXES[encoding]}" for index in range(len(sizes))]
    new = list(zip(names, sizes, strict=True))
    parts, old_from, new_from = [], 0, 0
    for end in sorted(set(old_ends) & set(new_ends)):
        # After the last of several that end there: empty shards hold no row of the next part.
        old_to = len(old_ends) - old_ends[::-1].index(end)
        new_to = len(new_ends) - new_ends[::-1].index(end)
        parts.append(Part(split=split, old=tuple(shards[old_from:old_to]), new=tuple(new[new_from:new_to])))
        old_from, new_from = old_to, new_to
    return parts


def even_sizes(rows: int, shards: int) -> list[int]:
    """Rows of each of at most so many shards, which differ by at most one; none is empty."""
    count = max(min(shards, rows), 1)
    edges = [rows * index // count for index in range(count + 1)]
    return [after - before for before, after in pairwise(edges)]


def _sound_rows(task: _Task) -> Iterator[Batch]:
    """The rows of the old shards of a part.

    Raises:
        InvalidRecords: the first damage.
    """
    for shard in task.part.old:
        for found in verified_rows(task.dataset, task.manifest, shard):
            if isinstance(found, InvalidRecords):
                raise found
            yield found


def _convert_part(task: _Task) -> tuple[Shard, ...]:
    rows = _Taker(_sound_rows(task))
    folder = task.work / task.part.split
    written = tuple(write_stream(folder / name, rows.take(size), task.encoding) for name, size in task.part.new)
    # Reads the last shard to its end, where its digest is compared.
    rows.end()
    return written


class _Taker:
    """Rows of a stream of batches, so many at a time."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self._batches = batches
        self._rest: Batch | None = None

    def take(self, rows: int) -> Iterator[Batch]:
        """The next `rows` rows; fewer where the stream ends."""
        while rows > 0:
            batch = next(self._batches, None) if self._rest is None else self._rest
            if batch is None:
                return
            self._rest = batch.rows(slice(rows, None)) if len(batch) > rows else None
            yield batch.rows(slice(0, rows))
            rows -= min(len(batch), rows)

    def end(self) -> None:
        """Read on to the end, where there are no rows any more."""
        for _ in self._batches:
            pass


def convert_dataset(dataset: Path, out: Path, encoding: Encoding, processes: int, shards: int = 0) -> Manifest:
    """Write the rows of `dataset` to `out`, and carry the rest of its manifest over; nothing is left when it fails.

    Args:
        shards: files of the train split (a quarter as many of the validation split); 0 keeps those of `dataset`.
    Raises:
        InvalidConfig: `out` is, holds or lies in `dataset`, or holds something that is no dataset.
        InvalidRecords: `dataset` is none, or damaged; file and record of the damage.
    """
    inner, outer = sorted((dataset.resolve(), out.resolve()), key=lambda path: len(path.parts), reverse=True)
    if inner.is_relative_to(outer):
        raise InvalidConfig(f"{out}: is, holds or lies in the dataset {dataset}; choose another folder")
    check_replaceable(out, marker=MANIFEST)
    manifest = read_manifest(dataset)
    parts: list[Part] = []
    for name in SPLITS:
        split = manifest.split(name)
        wanted = shards if name == "train" else max(shards // 4, 1)
        sizes = even_sizes(split.examples, wanted) if shards else [shard.examples for shard in split.shards]
        parts += divide(name, split.shards, sizes, encoding)
    # The largest first, so that no process ends up alone with one.
    order = sorted(range(len(parts)), key=lambda index: -sum(shard.bytes for shard in parts[index].old))
    every = [shard for part in parts for shard in part.old]
    progress = Progress(sum(shard.bytes for shard in every), sum(shard.examples for shard in every))
    with publish_folder(out, marker=MANIFEST) as work:
        for name in SPLITS:
            (work / name).mkdir()
        for beside in sorted(BESIDE - {MANIFEST}):
            if (dataset / beside).is_file():
                shutil.copyfile(dataset / beside, work / beside)
        tasks = [_Task(dataset=dataset, manifest=manifest, encoding=encoding, work=work, part=parts[index]) for index in order]
        written: dict[int, tuple[Shard, ...]] = {}
        for task, shards_of_part in in_processes(_convert_part, tasks, processes):
            written[order[task]] = shards_of_part
            progress.add(sum(shard.bytes for shard in tasks[task].part.old))
        splits = {name: _split_of([written[index] for index, part in enumerate(parts) if part.split == name]) for name in SPLITS}
        converted = replace(manifest, encoding=encoding, train=splits["train"], validation=splits["validation"])
        write_manifest(work, converted)
    return converted


def _split_of(parts: Sequence[tuple[Shard, ...]]) -> Split:
    shards = tuple(shard for part in parts for shard in part)
    return Split(
        examples=sum(shard.examples for shard in shards), positives=sum(shard.positives for shard in shards), shards=shards
    )
