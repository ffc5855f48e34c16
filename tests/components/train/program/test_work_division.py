"""Real jobs whose workers read different things: uneven and empty shards, hosts with a part of the files, a FIFO each."""

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SETTINGS = {"embedding_size": 4, "deep_layers": "[8]", "seed": 5}


def entry(mode: str = "File", distribution: str = "FullyReplicated") -> dict[str, str]:
    return {"TrainingInputMode": mode, "S3DistributionType": distribution, "RecordWrapperType": "None"}


def by_host(dataset: Path, hosts: int) -> Callable[[Path, int], dict[str, dict[str, str]]]:
    """Every hosts-th file on each, as ShardedByS3Key gives them."""

    def lay_out(data: Path, host: int) -> dict[str, dict[str, str]]:
        (data / "train").mkdir()
        for path in sorted((dataset / "train").iterdir())[host::hosts]:
            (data / "train" / path.name).symlink_to(path)
        return {"train": entry(distribution="ShardedByS3Key")}

    return lay_out


def test_two_ranks_end_together_on_uneven_and_empty_shards(
    run_job: Callable[..., Any], make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    """Two epochs of 13 rows in global batches of 4: 12 used, 1 left out."""
    dataset = make_dataset(tmp_path / "set", "examples", (7, 5, 1, 0))
    job = run_job(dataset, strategy="horovod", workers_per_host=2, batch_size=2, epochs=2, **SETTINGS)
    assert job.wait(60.0) == [0], job.log()
    training = job.training()
    assert (training["steps"], training["steps_per_epoch"], training["examples"]) == (6, 3, 24)
    assert (training["examples_left_out"], training["examples_repeated"]) == (1, 0)
    assert "train/part-00003.tfrecord: an empty shard, 0 rows" in job.log()
    assert "6 steps of 2 examples each, 3 an epoch; of 13 rows an epoch uses 12, 1 are left out, 0 repeated" in job.log()
    assert "rows are kept in memory for the next epoch: 13 rows for each of 2 workers take" in job.log()


def test_a_batch_larger_than_the_epoch_is_filled_up_and_said_so(
    run_job: Callable[..., Any], make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    dataset = make_dataset(tmp_path / "set", "blocks", (7, 5, 1, 0))
    job = run_job(dataset, strategy="single", batch_size=16, epochs=3, **SETTINGS)
    assert job.wait(60.0) == [0], job.log()
    training = job.training()
    assert (training["steps"], training["examples_left_out"], training["examples_repeated"]) == (3, 0, 3)
    assert "takes more than the 13 rows: 3 are used again in each epoch; lower batch_size" in job.log()


@pytest.mark.parametrize("strategy", ["horovod", "parameter_server"])
def test_hosts_that_have_a_part_of_the_files_take_equal_steps(
    run_job: Callable[..., Any], make_dataset: Callable[..., Path], tmp_path: Path, strategy: str
) -> None:
    """300 + 50 rows on one host and 200 on the other: 6 batches of 32 an epoch on either."""
    dataset = make_dataset(tmp_path / "set", "blocks", (300, 200, 50))
    job = run_job(dataset, 2, lay_out=by_host(dataset, 2), strategy=strategy, batch_size=32, epochs=2, **SETTINGS)
    assert job.wait(90.0) == [0, 0], job.log()
    training = job.training()
    assert (training["steps_per_epoch"], training["examples"]) == (6, 2 * 6 * 64)
    assert training["examples_left_out"] == 550 - 6 * 64
    assert [(rank["rank"], rank["steps"]) for rank in training["ranks"]] == [(0, 12), (1, 12)]


def test_ranks_of_a_host_read_a_fifo_each_and_damage_is_named(
    run_job: Callable[..., Any], make_dataset: Callable[..., Path], tmp_path: Path
) -> None:
    """Two epochs; then a job whose second rank gets a damaged record."""
    dataset = make_dataset(tmp_path / "set", "blocks", (320, 320))
    shards = [path.read_bytes() for path in sorted((dataset / "train").iterdir())]
    broken = bytearray(shards[1])
    broken[500] ^= 1

    def write(path: Path, content: bytes) -> None:
        with contextlib.suppress(BrokenPipeError):  # a reader that has seen enough
            path.write_bytes(content)

    def fifos(second_of_epoch_1: bytes) -> Callable[[Path, int], dict[str, dict[str, str]]]:
        def lay_out(data: Path, host: int) -> dict[str, dict[str, str]]:
            for name, content in (
                ("train-0_0", shards[0]),
                ("train-0_1", shards[0]),
                ("train-1_0", shards[1]),
                ("train-1_1", second_of_epoch_1),
            ):
                os.mkfifo(data / name)
                threading.Thread(target=write, args=(data / name, content), daemon=True).start()
            return {"train-0": entry("Pipe"), "train-1": entry("Pipe")}

        return lay_out

    settings = {"strategy": "horovod", "workers_per_host": 2, "batch_size": 32, "epochs": 2, **SETTINGS}
    job = run_job(dataset, lay_out=fifos(shards[1]), **settings)
    assert job.wait(60.0) == [0], job.log()
    training = job.training()
    assert (training["steps"], training["examples"], training["input_mode"]) == (20, 1280, "Pipe")
    job = run_job(dataset, lay_out=fifos(bytes(broken)), **settings)
    assert job.wait(60.0) == [1], job.log()
    assert job.reason().endswith("input/data/train-1_1, record 0: damaged payload (checksum differs)")


def test_a_layout_that_cannot_work_starts_no_process_and_a_missing_writer_ends_the_job(
    run_job: Callable[..., Any], dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run_job(dataset, lay_out=lambda data, host: {"train": entry("Pipe")}, strategy="horovod", workers_per_host=2)
    assert job.wait(20.0) == [1]
    assert "two readers on one FIFO corrupt each other, give channels train-0, train-1" in job.reason()
    assert "starting rank" not in job.log()

    def silent(data: Path, host: int) -> dict[str, dict[str, str]]:
        os.mkfifo(data / "train_0")
        return {"train": entry("Pipe")}

    monkeypatch.setenv("CTRFLOW_PIPE_DEADLINE_S", "2")
    job = run_job(dataset, lay_out=silent, strategy="single", **SETTINGS)
    assert job.wait(45.0) == [1]
    assert job.reason().endswith("input/data/train_0: no data for 2 s; the writer is missing or hangs")
