"""How the rows of an epoch are divided among the workers: equal steps for all, every row once or counted.

Which workers read the same rows, and divide each global batch of theirs, depends on the channels of a host (channels.py) and
on what S3 gives to each host. With n workers, h hosts and w workers a host:

    a channel for each worker?   a part of the files for each host?   readers of the same rows
    no                           no                                   all n
    no                           yes                                  the w of a host
    yes                          no                                   the h with the same local rank
    yes                          yes                                  one

Reader i of r takes rows [i*B, (i+1)*B) of each r*B rows, so what all readers see together does not depend on how many they are.
An epoch ends for all where the shortest of them runs out of whole batches. An epoch too short for one batch each is one step,
filled up with rows that are used a second time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from components.errors import InvalidConfig, InvalidRecords
from components.train.program.config import TrainConfig


@dataclass(frozen=True, kw_only=True)
class Share:
    """What one worker reads in an epoch.

    Attributes:
        place: host and channel, for messages.
        shards: which of the manifest's train shards; None where only S3 knows (Pipe mode, sharded by host).
        rows: how many there are in those; where only S3 knows, how many there are at least.
        readers: how many workers read the same rows. index: which of them this is.
    """

    place: str
    shards: tuple[int, ...] | None
    rows: int
    readers: int
    index: int


@dataclass(frozen=True, kw_only=True)
class Division:
    """Worker `rank` of `size` and what everyone reads; counts of rows are of one epoch of all workers."""

    rank: int
    size: int
    batch_size: int
    steps: int
    steps_per_epoch: int
    used: int
    left_out: int
    repeated: int
    shares: tuple[Share, ...]

    @property
    def share(self) -> Share:
        return self.shares[self.rank]

    @property
    def epochs(self) -> int:
        """How many epochs are begun."""
        return -(-self.steps // self.steps_per_epoch)


def _groups(shares: Sequence[Share]) -> list[list[Share]]:
    """Workers that read the same rows."""
    groups: dict[object, list[Share]] = {}
    for rank, share in enumerate(shares):
        groups.setdefault(rank if share.shards is None else share.shards, []).append(share)
    return list(groups.values())


def check_cover(shares: Sequence[Share], files: Sequence[str]) -> None:
    """Every shard must be read by exactly one group of readers.

    Args:
        files: names of the train shards, as the manifest lists them.
    Raises:
        InvalidRecords: a shard that nobody reads, or two that do not know of each other.
    """
    if any(share.shards is None for share in shares):
        return  # FIFOs show no names; every reader counts what comes
    found: dict[int, list[Share]] = {}
    for group in _groups(shares):
        for shard in group[0].shards or ():
            found.setdefault(shard, []).extend(group)
    for shard, file in enumerate(files):
        readers = found.get(shard, [])
        if not readers:
            places = ", ".join(dict.fromkeys(share.place for share in shares))
            raise InvalidRecords(
                f"{file}: the manifest lists it, and it is in none of {places}; check URI and distribution of train"
            )
        if len(readers) != readers[0].readers:
            places = ", ".join(dict.fromkeys(share.place for share in readers))
            raise InvalidRecords(
                f"{file}: read {len(readers)} times, in {places}, where {readers[0].readers} readers divide its rows; "
                "channels of workers, and hosts under ShardedByS3Key, must hold different files"
            )


def divide(shares: Sequence[Share], config: TrainConfig, rank: int, examples: int) -> Division:
    """Equal work for every worker.

    Args:
        shares: of all workers, by rank. examples: rows of the train split.
    Raises:
        InvalidConfig: more workers than rows to read, in all or in one place.
    """
    size, batch = len(shares), config.batch_size
    if examples < size:
        raise InvalidConfig(f"{size} workers, and the train split has {examples} rows; every worker needs one, use fewer workers")
    groups = _groups(shares)
    for group in groups:
        first = group[0]
        if first.rows < first.readers:
            raise InvalidConfig(
                f"{first.place}: {first.rows} rows for {first.readers} workers; every worker needs one, "
                f"use fewer workers or more shards"
            )
    steps_per_epoch = min(group[0].rows // (group[0].readers * batch) for group in groups)
    if steps_per_epoch:
        used, repeated = steps_per_epoch * size * batch, 0
    else:
        steps_per_epoch = 1
        used = sum(min(group[0].rows, group[0].readers * batch) for group in groups)
        repeated = size * batch - used
    return Division(
        rank=rank,
        size=size,
        batch_size=batch,
        steps=config.steps or config.epochs * steps_per_epoch,
        steps_per_epoch=steps_per_epoch,
        used=used,
        left_out=examples - used,
        repeated=repeated,
        shares=tuple(shares),
    )
