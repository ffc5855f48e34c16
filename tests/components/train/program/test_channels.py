"""Which channels a host has, and what each worker reads of them: the sharding table of the README."""

import json
from pathlib import Path

import pytest

from components.errors import InvalidConfig
from components.train.program.channels import Channels, find_channels
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.layout import Layout


def entry(mode: str = "File", distribution: str = "FullyReplicated", wrapper: str = "None") -> dict[str, str]:
    return {"TrainingInputMode": mode, "S3DistributionType": distribution, "RecordWrapperType": wrapper}


def channels_of(folder: Path, listed: dict[str, dict[str, str]], workers: int = 1, strategy: str = "horovod") -> Channels:
    (folder / "input/config").mkdir(parents=True)
    (folder / "input/config/inputdataconfig.json").write_text(json.dumps(listed))
    container = Container(base=folder, hosts=("algo-1",), current_host="algo-1", network_interface="lo")
    return find_channels(container, TrainConfig(strategy=strategy, workers_per_host=workers))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listed", "workers", "expected"),
    [
        ({"train": entry()}, 2, Channels(names=("train",), input_mode="File", by_host=False)),
        ({"train": entry("FastFile")}, 1, Channels(names=("train",), input_mode="FastFile", by_host=False)),
        ({"train": entry("Pipe")}, 1, Channels(names=("train",), input_mode="Pipe", by_host=False)),
        (
            {"train": entry(distribution="ShardedByS3Key"), "validation": entry("Pipe")},
            2,
            Channels(names=("train",), input_mode="File", by_host=True),
        ),
        (
            {f"train-{local}": entry("Pipe") for local in (1, 0)},
            2,
            Channels(names=("train-0", "train-1"), input_mode="Pipe", by_host=False),
        ),
    ],
)
def test_channels_that_can_be_trained_on(
    tmp_path: Path, listed: dict[str, dict[str, str]], workers: int, expected: Channels
) -> None:
    assert channels_of(tmp_path, {**listed, "manifest": entry()}, workers) == expected


def test_a_channel_for_the_transform_must_hold_it(tmp_path: Path) -> None:
    listed = {"train": entry("Pipe"), "manifest": entry(), "transform": entry()}
    with pytest.raises(InvalidConfig, match=r"transform\.json: missing; give channel transform the dataset's"):
        channels_of(tmp_path / "without", listed)
    (tmp_path / "with/input/data/transform").mkdir(parents=True)
    (tmp_path / "with/input/data/transform/transform.json").touch()
    assert channels_of(tmp_path / "with", listed).names == ("train",)


@pytest.mark.parametrize(
    ("listed", "workers", "reason"),
    [
        ({}, 1, "channels manifest; give train, or one for each worker of a host: train-0"),
        ({"train": entry(), "train-0": entry()}, 1, "channels train, train-0, manifest; give train, or one for each worker"),
        ({"train-0": entry(), "train-2": entry()}, 2, "give train, or one for each worker of a host: train-0, train-1"),
        (
            {"train": entry("Pipe")},
            2,
            "Pipe mode: 2 workers of a host and one channel, train; two readers on one FIFO corrupt each other, "
            "give channels train-0, train-1",
        ),
        ({"train-0": entry("Pipe")}, 2, "give train, or one for each worker of a host: train-0, train-1"),
        ({"train-0": entry("Pipe"), "train-1": entry("File")}, 2, "channels train-0, train-1 differ in input mode"),
        ({"train": entry("Stream")}, 1, "TrainingInputMode 'Stream' of train is none of File, FastFile, Pipe"),
        ({"train": entry(distribution="Random")}, 1, "S3DistributionType 'Random' is neither"),
        ({"train": entry("Pipe", wrapper="RecordIO")}, 1, "RecordWrapperType RecordIO wraps records a second time"),
        ({"train": entry("Pipe"), "manifest": entry("Pipe")}, 1, "channel manifest must be read before training"),
    ],
)
def test_other_layouts_are_refused_before_training(
    tmp_path: Path, listed: dict[str, dict[str, str]], workers: int, reason: str
) -> None:
    with pytest.raises(InvalidConfig) as caught:
        channels_of(tmp_path, {**listed, "manifest": listed.get("manifest", entry())}, workers)
    assert reason in str(caught.value)


def test_parameter_servers_read_files(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="strategy parameter_server read files"):
        channels_of(tmp_path, {"train": entry("Pipe"), "manifest": entry()}, strategy="parameter_server")


# Seven shards of 10, 11 ... 16 rows, two hosts of two workers.
ROWS = tuple(range(10, 17))


def layout(names: tuple[str, ...], input_mode: str, by_host: bool) -> Layout:
    return Layout(
        base=Path("/nowhere"),
        hosts=("algo-1", "algo-2"),
        host=0,
        local_rank=0,
        workers_per_host=2,
        channels=Channels(names=names, input_mode=input_mode, by_host=by_host),  # type: ignore[arg-type]
        names=tuple(f"part-{index:05d}.tfrecord" for index in range(7)),
        rows=ROWS,
    )


def part(*shards: int) -> list[str]:
    return [f"part-{shard:05d}.tfrecord" for shard in shards]


EACH = ("train-0", "train-1")


@pytest.mark.parametrize(
    ("names", "by_host", "present", "expected"),
    [
        # No channel of its own, everything on every host: all four divide everything.
        (("train",), False, part(0, 1, 2, 3, 4, 5, 6), (tuple(range(7)), 91, 4, 3)),
        # S3 gave this host three files: its two workers divide them.
        (("train",), True, part(1, 3, 5), ((1, 3, 5), 39, 2, 1)),
        # This worker's channel is on both hosts: the two workers that have it divide it.
        (EACH, False, part(1, 3, 5), ((1, 3, 5), 39, 2, 1)),
        # A channel of its own, and S3 gave this host some of it: nobody else reads that.
        (EACH, True, part(1, 5), ((1, 5), 26, 1, 0)),
    ],
    ids=["neither", "by-host", "channel-a-worker", "both"],
)
def test_what_local_rank_1_of_the_second_host_reads(
    names: tuple[str, ...], by_host: bool, present: list[str], expected: tuple[tuple[int, ...], int, int, int]
) -> None:
    share = layout(names, "File", by_host).share(1, 1, [*present, "README.txt"])
    assert (share.shards, share.rows, share.readers, share.index) == expected
    assert share.place == f"algo-2, channel {names[-1]}"


def test_in_pipe_mode_channel_i_holds_every_wth_shard() -> None:
    found = [layout(EACH, "Pipe", False).share(host, local, []) for host in (0, 1) for local in (0, 1)]
    assert [(share.shards, share.rows, share.readers, share.index) for share in found] == [
        ((0, 2, 4, 6), 52, 2, 0),
        ((1, 3, 5), 39, 2, 0),
        ((0, 2, 4, 6), 52, 2, 1),
        ((1, 3, 5), 39, 2, 1),
    ]


def test_in_pipe_mode_by_host_the_smallest_files_are_counted_on() -> None:
    """S3 gives a host one or two of the files 1, 3, 5 and two of 0, 2, 4, 6; which ones nobody can know."""
    of_even, of_odd = (layout(EACH, "Pipe", True).share(1, local, []) for local in (0, 1))
    assert (of_even.shards, of_even.rows, of_even.readers) == (None, 10 + 12, 1)
    assert (of_odd.shards, of_odd.rows, of_odd.readers) == (None, 11, 1)
