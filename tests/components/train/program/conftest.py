"""A job run as SageMaker would: folders, configuration files, one launcher a host; real processes and real TensorFlow."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
import pytest

from components.manifest import Manifest, Split, Statistics, write_manifest
from components.records import Batch, Encoding, Schema, Shard, write_shard

FIELDS, TABLE, ROWS = 5, 2000, 6400


def hold_ports() -> tuple[int, socket.socket]:
    """A base with 40 ports above it that nothing listens on, below those of outgoing connections and of the local endpoint.

    Returns:
        the base, and a socket on the last port before the next base: while it is open no other job gets the same ports, also none
        of another process that runs tests.
    """
    while True:
        base = random.randrange(10_000, 20_000, 50)
        try:
            holder = socket.create_server(("0.0.0.0", base + 49))
        except OSError:
            continue
        try:
            for offset in (0, 1, 10, 11, 12, 20, 21):
                with socket.create_server(("0.0.0.0", base + offset)):
                    pass
        except OSError:
            holder.close()
            continue
        return base, holder


def planted_rows(count: int) -> Batch:
    """Rows whose clicks depend on the value of the first field, whose id is always 0, and on the id of the second."""
    draw = np.random.default_rng(11)
    ids = draw.integers(0, TABLE, (count, FIELDS))
    ids[:, 0] = 0
    values = draw.random((count, FIELDS)).astype(np.float32)
    chance = 0.05 + 0.7 * values[:, 0] + np.where(ids[:, 1] < TABLE // 2, 0.2, 0.0)
    return Batch(labels=(draw.random(count) < chance).astype(np.float32), ids=ids, values=values)


def write_dataset(folder: Path, rows: Batch, encoding: Encoding, sizes: tuple[int, ...]) -> Path:
    """A dataset of train shards of the given sizes, and one validation shard of the last rows."""
    shards: list[Shard] = []
    (folder / "train").mkdir(parents=True)
    (folder / "validation").mkdir()
    start = 0
    for index, size in enumerate(sizes):
        part = rows.rows(slice(start, start + size))
        shards.append(write_shard(folder / "train" / f"part-{index:05d}.tfrecord", part, encoding))
        start += size
    held = write_shard(folder / "validation" / "part-00000.tfrecord", rows.rows(slice(start, None)), encoding)
    write_manifest(
        folder,
        Manifest(
            encoding=encoding,
            schema=Schema(field_size=FIELDS, feature_size=TABLE),
            train=Split(examples=start, positives=sum(shard.positives for shard in shards), shards=tuple(shards)),
            validation=Split(examples=held.examples, positives=held.positives, shards=(held,)),
            statistics=Statistics(
                smallest_id=0,
                largest_id=TABLE - 1,
                smallest_value=0.0,
                largest_value=1.0,
                missing=0,
                click_rate=0.5,
                distinct_ids_by_field=(TABLE,) * FIELDS,
                validation_rows_in_train=0,
            ),
            sources=(),
            versions={},
        ),
    )
    return folder


@pytest.fixture(scope="session")
def make_dataset() -> Callable[[Path, Encoding, tuple[int, ...]], Path]:
    """A dataset of train shards of the given sizes."""
    return lambda folder, encoding, sizes: write_dataset(folder, planted_rows(sum(sizes) + 100), encoding, sizes)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "set", planted_rows(ROWS), "blocks", (2000, 2000, 1900))


@dataclass(frozen=True, kw_only=True)
class Network:
    """Where the hosts of a job are: address by host, the interface that they meet over, and what starts a command on each."""

    addresses: tuple[str, ...]
    interface: str = "lo"
    prefixes: tuple[tuple[str, ...], ...] = ()


LAUNCH = (sys.executable, "-m", "components.train.program.launch")

FILE_MODE = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
# Lays out the training channels of a host (0-based) below its input/data; returns their entries in inputdataconfig.json.
LayOut = Callable[[Path, int], dict[str, dict[str, str]]]


class Job:
    """The hosts of one job."""

    def __init__(
        self,
        root: Path,
        dataset: Path,
        hosts: int,
        hyperparameters: dict[str, object],
        command: Sequence[str] = LAUNCH,
        network: Network | None = None,
        champion: Path | None = None,
        lay_out: LayOut | None = None,
        transform: str = "",
    ) -> None:
        names = [f"algo-{index + 1}" for index in range(hosts)]
        network = network or Network(addresses=tuple(f"127.0.0.{index + 1}" for index in range(hosts)))
        addresses = dict(zip(names, network.addresses, strict=True))
        self._command, self._network = command, network
        self.bases = [root / name for name in names]
        self._environments = []
        for name, base in zip(names, self.bases, strict=True):
            for folder in ("input/config", "input/data/manifest", "model", "output/data"):
                (base / folder).mkdir(parents=True)
            resources = {"current_host": name, "hosts": names, "network_interface_name": network.interface}
            (base / "input/config/resourceconfig.json").write_text(json.dumps(resources))
            texts = {key: str(value) for key, value in hyperparameters.items()}
            (base / "input/config/hyperparameters.json").write_text(json.dumps(texts))
            if lay_out is None:
                (base / "input/data/train").symlink_to(dataset / "train")
                channels = {"train": FILE_MODE}
            else:
                channels = lay_out(base / "input/data", names.index(name))
            (base / "input/config/inputdataconfig.json").write_text(json.dumps({**channels, "manifest": FILE_MODE}))
            (base / "input/data/manifest/manifest.json").write_bytes((dataset / "manifest.json").read_bytes())
            if champion:
                (base / "input/data/champion").symlink_to(champion)
            if transform:
                (base / "input/data/transform").mkdir()
                (base / "input/data/transform/transform.json").write_text(transform)
            own = {"SAGEMAKER_BASE_DIR": str(base), "CTRFLOW_HOST_ADDRESSES": json.dumps(addresses)}
            self._environments.append({**os.environ, **own})
        self.launchers: list[subprocess.Popen[bytes]] = []
        self._ports: socket.socket | None = None
        self.start()

    def start(self) -> None:
        """Start every host, again if it ran before; what the hosts left stays where it is, as after a spot interruption."""
        self.launchers = []
        self._free_ports()
        port_base, self._ports = hold_ports()
        prefixes = self._network.prefixes or ((),) * len(self.bases)
        for base, environment, prefix in zip(self.bases, self._environments, prefixes, strict=True):
            with base.with_suffix(".log").open("wb") as log:
                command = [*prefix, *self._command]
                environment["CTRFLOW_PORT_BASE"] = str(port_base)
                self.launchers.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True))

    def wait(self, timeout_s: float = 180.0) -> list[int]:
        deadline = time.monotonic() + timeout_s
        return [launcher.wait(max(deadline - time.monotonic(), 0.1)) for launcher in self.launchers]

    def log(self) -> str:
        return "".join(base.with_suffix(".log").read_text() for base in self.bases)

    def reason(self, host: int = 0) -> str:
        return (self.bases[host] / "output/failure").read_text()

    def training(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.bases[0] / "output/data/training.json").read_text())
        return found

    def losses(self) -> list[float]:
        return [loss for _, loss in self.training()["losses"]]

    def processes(self) -> dict[str, psutil.Process]:
        """Running training processes by role."""
        found = {}
        for launcher in self.launchers:
            for child in psutil.Process(launcher.pid).children():
                found[child.environ()["CTRFLOW_ROLE"]] = child
        return found

    def wait_for_steps(self, timeout_s: float = 90.0) -> dict[str, psutil.Process]:
        """The processes once training is under way."""
        deadline = time.monotonic() + timeout_s
        while "left out" not in self.log():
            assert time.monotonic() < deadline, self.log()
            assert all(launcher.poll() is None for launcher in self.launchers), self.log()
            time.sleep(0.1)
        # Touched when the loop is entered, and from then on only when a step has ended.
        progress = self.bases[0] / "output" / ".progress.rank-0"
        entered = None
        while entered is None or progress.stat().st_mtime_ns == entered:
            assert time.monotonic() < deadline, self.log()
            assert all(launcher.poll() is None for launcher in self.launchers), self.log()
            time.sleep(0.1)
            entered = entered or (progress.stat().st_mtime_ns if progress.exists() else None)
        return self.processes()

    def _free_ports(self) -> None:
        if self._ports:
            self._ports.close()

    def kill(self) -> None:
        for launcher in self.launchers:
            try:
                os.killpg(launcher.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            launcher.wait()
        self._free_ports()


@dataclass(frozen=True, kw_only=True)
class Alone:
    """What one process, this one, had for losses when it trained alone, and what it ended with."""

    losses: list[float]
    strategy: Any
    model: Any

    def weights(self) -> dict[str, Any]:
        """As weights.npz names them."""
        table, dense = self.strategy.parameters()
        return {"table": table, **{f"dense_{index}": value for index, value in enumerate(dense)}}


def train_alone(dataset: Path, config: Any, begin: Callable[[Any], None] | None) -> Alone:
    """Train here, without a job, from the weights that `begin` writes into a fresh strategy."""
    from components.train.program.channels import Channels
    from components.train.program.container import Container
    from components.train.program.division import Share, divide
    from components.train.program.input import batches, find_source, read_files
    from components.train.program.model import make_model
    from components.train.program.single import Single

    with TemporaryDirectory() as folder:
        container = Container(base=Path(folder), hosts=("algo-1",), current_host="algo-1", network_interface="lo")
        container.data.mkdir(parents=True)
        (container.data / "train").symlink_to(dataset / "train")
        (container.data / "manifest").symlink_to(dataset)
        source, _, manifest = find_source(container, config, Channels(names=("train",), input_mode="File", by_host=False), 0)
        shards = tuple(range(len(manifest.train.shards)))
        share = Share(place="here", shards=shards, rows=source.examples, readers=1, index=0)
        rows = batches(read_files(source.files, source.encoding), source, divide([share], config, 0, source.examples), config.seed)
        model = make_model(config, source.field_size, source.click_rate)
        strategy = Single(config, source, model)
        if begin:
            begin(strategy)
        return Alone(losses=[strategy.train(batch) for batch in rows], strategy=strategy, model=model)


@pytest.fixture(scope="session")
def alone(dataset: Path) -> Callable[..., Alone]:
    """One process that trains alone on `dataset` with these hyperparameters: once, however many tests compare with it."""
    from components.train.program.config import parse_hyperparameters

    known: dict[Any, Alone] = {}

    def train(begin: Callable[[Any], None] | None = None, **hyperparameters: object) -> Alone:
        config = parse_hyperparameters({name: str(value) for name, value in hyperparameters.items()})
        if begin:
            return train_alone(dataset, config, begin)
        if config not in known:
            known[config] = train_alone(dataset, config, None)
        return known[config]

    return train


@pytest.fixture(scope="session")
def make_network() -> Callable[..., Network]:
    return Network


@pytest.fixture
def run_job(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Start a job with these hyperparameters; whatever is left of it is killed at the end."""
    jobs: list[Job] = []

    def run(
        dataset: Path,
        hosts: int = 1,
        command: Sequence[str] = LAUNCH,
        network: Network | None = None,
        champion: Path | None = None,
        lay_out: LayOut | None = None,
        transform: str = "",
        **hyperparameters: object,
    ) -> Job:
        root = tmp_path / f"job{len(jobs)}"
        root.mkdir()
        jobs.append(Job(root, dataset, hosts, hyperparameters, command, network, champion, lay_out, transform))
        return jobs[-1]

    yield run
    for job in jobs:
        job.kill()
