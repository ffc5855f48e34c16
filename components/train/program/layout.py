"""Which shards of the train split lie where: from the manifest, the channels of a host, and what its folders hold."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from components.errors import InvalidConfig
from components.manifest import Manifest
from components.train.program.channels import Channels
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Share


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The train shards of a job as worker `local_rank` of host `host` sees them.

    Attributes:
        names: file names of the shards in the order of the manifest. rows: of each.
    """

    base: Path
    hosts: tuple[str, ...]
    host: int
    local_rank: int
    workers_per_host: int
    channels: Channels
    names: tuple[str, ...]
    rows: tuple[int, ...]

    def share(self, host: int, local_rank: int, present: Iterable[str]) -> Share:
        """What a worker reads.

        Args:
            present: names of files in its channel's folder; of no use in Pipe mode.
        Raises:
            InvalidConfig: in Pipe mode, fewer files than hosts that S3 divides them among.
        """
        channels, channel = self.channels, self.channels.of(local_rank)
        place = f"{self.hosts[host]}, channel {channel}"
        readers, index = 1, 0
        if not channels.by_host:
            readers, index = len(self.hosts), host
        if not channels.per_worker:
            readers, index = readers * self.workers_per_host, index * self.workers_per_host + local_rank
        if channels.input_mode == "Pipe":
            # A FIFO has no listing: what each channel holds is agreed, as the README of the program says.
            shards = tuple(range(local_rank, len(self.names), len(channels.names)))
            if channels.by_host:
                return Share(place=place, shards=None, rows=self._fewest_rows(shards, channel), readers=1, index=0)
        elif channels.by_host or channels.per_worker:
            here = set(present)
            shards = tuple(shard for shard, name in enumerate(self.names) if name in here)
        else:
            shards = tuple(range(len(self.names)))
        return Share(place=place, shards=shards, rows=sum(self.rows[shard] for shard in shards), readers=readers, index=index)

    def _fewest_rows(self, shards: tuple[int, ...], channel: str) -> int:
        """Rows that every host gets at least. Source: SageMaker gives each of n hosts about 1/n of the objects."""
        objects = len(shards) // len(self.hosts)
        if objects == 0:
            raise InvalidConfig(
                f"channel {channel}: {len(shards)} files for {len(self.hosts)} hosts under ShardedByS3Key; every host needs one, "
                "preprocess with more --shards"
            )
        return sum(sorted(self.rows[shard] for shard in shards)[:objects])

    def folder(self, local_rank: int) -> Path:
        """Of a worker's channel."""
        return self.base / "input" / "data" / self.channels.of(local_rank)

    def own(self) -> Share:
        """What this process reads."""
        folder = self.folder(self.local_rank)
        present = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return self.share(self.host, self.local_rank, present)

    def files(self, share: Share, folder: Path) -> tuple[str, ...]:
        """Paths of the shards of a share in a folder."""
        return tuple(str(folder / self.names[shard]) for shard in share.shards or ())


def find_layout(container: Container, config: TrainConfig, channels: Channels, manifest: Manifest, local_rank: int) -> Layout:
    return Layout(
        base=container.base,
        hosts=container.hosts,
        host=container.host_index,
        local_rank=local_rank,
        workers_per_host=config.workers_per_host,
        channels=channels,
        names=tuple(Path(shard.path).name for shard in manifest.train.shards),
        rows=tuple(shard.examples for shard in manifest.train.shards),
    )
