"""Situations that a selector must do well in: models, encodings, a slow disk, a slow link between hosts. For benchmarks.

The slow disk is `slow_disk.cc`, a library that every process of a job is started with. The slow link needs root and a network of
this process's own (`in_own_network`), where what goes to or from 127.0.0.2, the second host of a local job, is slow.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planted import Planted, write_dataset

from components.conversion import convert_dataset
from components.plan import ModelSettings
from components.records import Encoding

IDS = 117_581
OWN_NETWORK = "CTRFLOW_BENCHMARK_NETWORK"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """`model` changes the settings' defaults; rates of disk and link are bytes and bits a second, None = as they are.

    `rows` of the train split are read again and again. An epoch begins with filling the shuffle buffer, so where reading is slow it
    must be short against the time that is measured, or a rate says only which part of an epoch was seen.
    """

    name: str
    model: Mapping[str, Any] = field(default_factory=dict)
    encoding: Encoding = "blocks"
    rows: int = 65_536
    disk_bytes_per_s: float | None = None
    link_bits_per_s: float | None = None

    def settings(self) -> ModelSettings:
        return ModelSettings(**self.model)

    @contextmanager
    def machine(self, work: Path) -> Iterator[None]:
        """The machine as this situation has it, for jobs that are started in the block."""
        with ExitStack() as stack:
            if self.disk_bytes_per_s:
                stack.enter_context(slow_disk(self.disk_bytes_per_s, work))
            if self.link_bits_per_s:
                stack.enter_context(slow_link(self.link_bits_per_s))
            yield


SITUATIONS = (
    Situation(name="default"),
    Situation(name="tiny", model={"embedding_size": 4, "deep_layers": (16,), "batch_size": 256}),
    Situation(name="wide embedding", model={"embedding_size": 128}),
    Situation(name="deep MLP", model={"embedding_size": 16, "deep_layers": (1024, 512, 256)}),
    Situation(name="examples", encoding="examples", model={"embedding_size": 8}),
    Situation(name="slow disk", rows=16_384, model={"embedding_size": 8}, disk_bytes_per_s=12e6),
    Situation(name="slow link", link_bits_per_s=100e6),
)


class Datasets:
    """Datasets of one planted world, each made when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, situation: Situation) -> Path:
        rows = situation.rows
        blocks, wanted = self._root / f"blocks-{rows}", self._root / f"{situation.encoding}-{rows}"
        if not blocks.exists():
            world = Planted(IDS)
            write_dataset(blocks, world.rows(rows, 1), world.rows(rows // 8, 2), IDS, shards=8)
        if not wanted.exists():
            convert_dataset(blocks, wanted, situation.encoding, 1, 0)
        return wanted


@contextmanager
def slow_disk(bytes_per_s: float, work: Path) -> Iterator[None]:
    """Processes that are started in the block read training shards at so many bytes a second, all together."""
    library, clock = work / "slow_disk.so", work / "slow_disk.clock"
    clock.write_bytes(bytes(8))
    source = Path(__file__).with_name("slow_disk.cc")
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    own = {"SLOW_DISK_PATH": "/train/part-", "SLOW_DISK_RATE": str(bytes_per_s), "SLOW_DISK_CLOCK": str(clock)}
    own["LD_PRELOAD"] = str(library)
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            del os.environ[name]


@contextmanager
def slow_link(bits_per_s: float) -> Iterator[None]:
    """What goes to or from the second host shares so many bits a second, within the block."""
    if not os.environ.get(OWN_NETWORK):
        raise OSError("a slow link needs a network of its own: call in_own_network first")
    tc = ["tc", "qdisc", "replace", "dev", "lo", "root", "handle", "1:", "htb", "default", "1"]
    quantum = ("quantum", "60000")
    subprocess.run(tc, check=True)
    try:
        for number, rate in ((1, 100e9), (2, bits_per_s)):
            of_class = ("parent", "1:", "classid", f"1:{number}", "htb", "rate", f"{rate:.0f}bit", *quantum)
            subprocess.run(["tc", "class", "add", "dev", "lo", *of_class], check=True)
        for end in ("src", "dst"):
            match = ("u32", "match", "ip", end, "127.0.0.2/32", "flowid", "1:2")
            subprocess.run(["tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", *match], check=True)
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


def in_own_network() -> None:
    """Start this program again in a network namespace that only has loopback, unless it runs in one already. Needs root."""
    if os.environ.get(OWN_NETWORK):
        return
    os.environ[OWN_NETWORK] = "1"
    inside = 'ip link set lo up && exec "$@"'
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", inside, "sh", sys.executable, *sys.argv])
