"""Pipe mode with real FIFOs: every record once, in order of epochs; damage is named; nothing waits for ever."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from components.errors import InvalidRecords
from components.framing import frame
from components.manifest import read_manifest
from components.records import read_shard
from components.train.program.config import TrainConfig
from components.train.program.division import Division, Share, divide
from components.train.program.input import Source, batches
from components.train.program.pipe import PipeReader

SIZES = (4100, 500, 900)


class Feeder:
    """Writes each epoch's bytes into the FIFO of that epoch, one after the other, as SageMaker's agent does."""

    def __init__(self, folder: Path, channel: str, epochs: Sequence[bytes]) -> None:
        self.opened: list[int] = []
        self._paths = [folder / f"{channel}_{epoch}" for epoch in range(len(epochs))]
        for path in self._paths:
            os.mkfifo(path)
        self._epochs = epochs
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _write(self) -> None:
        for epoch, (path, content) in enumerate(zip(self._paths, self._epochs, strict=True)):
            with path.open("wb") as fifo:  # waits for the reader
                self.opened.append(epoch)
                try:
                    fifo.write(content)
                except BrokenPipeError:
                    return

    def release(self) -> None:
        """Let a writer that nobody reads from end."""
        for path in self._paths:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        self._thread.join(5)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Callable[..., Feeder]]:
    feeders: list[Feeder] = []

    def start(channel: str, *epochs: bytes) -> Feeder:
        feeders.append(Feeder(tmp_path, channel, epochs))
        return feeders[-1]

    yield start
    for feeder in feeders:
        feeder.release()


@pytest.fixture(scope="module", params=["blocks", "examples"])
def piped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_dataset: Callable[..., Path]) -> Path:
    return make_dataset(tmp_path_factory.mktemp("piped") / "set", request.param, SIZES)


def stream(dataset: Path, shards: Sequence[int]) -> bytes:
    """What S3 sends of these shards: their bytes, one file after the other."""
    return b"".join((dataset / f"train/part-{shard:05d}.tfrecord").read_bytes() for shard in shards)


def columns(dataset: Path, shards: Sequence[int]) -> list[tuple[Any, Any, Any]]:
    """Labels, ids and values of whole shards."""
    manifest = read_manifest(dataset)
    paths = [dataset / f"train/part-{shard:05d}.tfrecord" for shard in shards]
    return [(b.labels, b.ids, b.values) for path in paths for b in read_shard(path, manifest.schema, manifest.encoding)]


def share(shards: tuple[int, ...] | None, rows: int, readers: int = 1, index: int = 0) -> Share:
    return Share(place="algo-1", shards=shards, rows=rows, readers=readers, index=index)


def division_of(shares: list[Share], rank: int, **settings: Any) -> Division:
    return divide(shares, TrainConfig(**settings), rank, sum(SIZES))


def read(folder: Path, dataset: Path, channel: str, division: Division, begun: int = 0) -> list[tuple[Any, Any, Any]]:
    """The batches of one rank, through tf.data."""
    manifest = read_manifest(dataset)
    reader = PipeReader(folder, channel, division.share, manifest, deadline_s=5.0)
    schema = manifest.schema
    source = Source(
        files=(), examples=sum(SIZES), field_size=schema.field_size, feature_size=schema.feature_size,
        click_rate=0.5, encoding=manifest.encoding,
    )  # fmt: skip
    try:
        return list(batches(reader.payloads, source, division, 1, begun).as_numpy_iterator())
    except tf.errors.OpError as error:
        raise (reader.explain() or error) from error


def rows_of(found: Sequence[tuple[Any, Any, Any]]) -> Any:
    """Ids and values side by side, sorted."""
    rows = np.concatenate([np.concatenate([ids, values, labels[:, None]], axis=1) for labels, ids, values in found])
    return rows[np.lexsort(rows.T)]


def test_one_rank_reads_every_row_once_an_epoch(tmp_path: Path, piped: Path, feed: Callable[..., Feeder]) -> None:
    whole = stream(piped, (0, 1, 2))
    feeder = feed("train", whole, whole)
    division = division_of([share((0, 1, 2), 5500)], 0, batch_size=500, epochs=2)
    found = read(tmp_path, piped, "train", division)
    assert feeder.opened == [0, 1]
    for epoch in (found[:11], found[11:]):
        np.testing.assert_array_equal(rows_of(epoch), rows_of(columns(piped, (0, 1, 2))))
    assert not np.array_equal(found[0][1], found[11][1])  # another order
    # A job that is started again gets its first FIFO again, whatever epoch it is in.
    feed("again", whole)
    resumed = read(tmp_path, piped, "again", division, begun=13)
    for (_, ids, _), (_, expected, _) in zip(resumed, found[13:], strict=True):
        np.testing.assert_array_equal(ids, expected)


def test_two_ranks_read_a_channel_each(tmp_path: Path, piped: Path, feed: Callable[..., Feeder]) -> None:
    feed("train-0", *[stream(piped, (0, 2))] * 2)
    feed("train-1", *[stream(piped, (1,))] * 2)
    shares = [share((0, 2), 5000), share((1,), 500)]
    first, second = (read(tmp_path, piped, f"train-{rank}", division_of(shares, rank, batch_size=100, epochs=2)) for rank in (0, 1))
    # The smaller channel decides: 5 batches each; of the larger one 500 different rows of 5000.
    assert (len(first), len(second)) == (10, 10)
    np.testing.assert_array_equal(rows_of(second[5:]), rows_of(columns(piped, (1,))))
    everything = {tuple(row) for row in rows_of(columns(piped, (0, 2)))}
    assert {tuple(row) for row in rows_of(first[:5])} <= everything
    assert len({tuple(row) for row in rows_of(first[:5])}) == 500


def test_the_next_epoch_is_not_opened_before_this_one_is_read_to_its_end(
    tmp_path: Path, piped: Path, feed: Callable[..., Feeder]
) -> None:
    """Also the rows that no batch takes are read: 5500 rows are 5 batches of 1000."""
    content = stream(piped, (0, 1, 2))
    feeder = feed("train", content, content)
    reader = PipeReader(tmp_path, "train", share((0, 1, 2), 5500), read_manifest(piped), deadline_s=5.0)
    chunks = reader.chunks(0)
    next(chunks)
    assert feeder.opened == [0]
    assert len(list(chunks)) > 0
    time.sleep(0.2)
    assert feeder.opened == [0]
    assert len(list(reader.chunks(1))) > 1
    assert feeder.opened == [0, 1]


def damaged(content: bytes, place: str) -> bytes:
    changed = bytearray(content)
    if place == "payload":
        changed[-40] ^= 1
    elif place == "cut":
        del changed[-3:]
    elif place == "start":
        changed[0] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("payload", "damaged payload (checksum differs)"),
        ("cut", "the file ends inside the record"),
        ("start", "train_1, record 0: not a TFRecord file"),
    ],
)
def test_damage_is_named_with_channel_epoch_and_record(
    tmp_path: Path, piped: Path, feed: Callable[..., Feeder], place: str, reason: str
) -> None:
    content = stream(piped, (0, 1, 2))
    feed("train", content, damaged(content, place))
    with pytest.raises(InvalidRecords) as caught:
        read(tmp_path, piped, "train", division_of([share((0, 1, 2), 5500)], 0, batch_size=500, epochs=2))
    assert str(caught.value).startswith(f"{tmp_path}/train_1, record ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("shards", "reason"),
    [
        ((0, 1), "train_0: ended after 4600 rows, the manifest says 5500; channel train must hold train shards 0, 1, 2 of it"),
        ((0, 1, 2, 1), "more than the 5500 rows of the manifest; channel train must hold train shards 0, 1, 2 of it"),
    ],
)
def test_rows_are_counted_against_the_manifest(
    tmp_path: Path, piped: Path, feed: Callable[..., Feeder], shards: tuple[int, ...], reason: str
) -> None:
    feed("train", stream(piped, shards))
    with pytest.raises(InvalidRecords) as caught:
        read(tmp_path, piped, "train", division_of([share((0, 1, 2), 5500)], 0, batch_size=500))
    assert reason in str(caught.value)


def test_what_s3_gives_a_host_may_be_more_than_was_counted_on(tmp_path: Path, piped: Path, feed: Callable[..., Feeder]) -> None:
    feed("train", stream(piped, (1, 2)))
    found = read(tmp_path, piped, "train", division_of([share(None, 500), share(None, 500)], 0, batch_size=100))
    assert len(found) == 5
    feed("other", stream(piped, (1,)))
    with pytest.raises(InvalidRecords, match="other_0: ended after 500 rows, the manifest says at least 900; S3 must give"):
        read(tmp_path, piped, "other", division_of([share(None, 900), share(None, 900)], 0, batch_size=100))


def test_a_record_that_is_no_row_of_this_dataset_is_named(tmp_path: Path, piped: Path, feed: Callable[..., Feeder]) -> None:
    """Its checksum is right; TensorFlow or the reader finds it, and the record is named."""
    good = stream(piped, (1,))
    feed("train", good + frame(b"whatever this is"))
    with pytest.raises(InvalidRecords, match=r"train_0, record (1|500)[: ]"):
        read(tmp_path, piped, "train", division_of([share((1, 2), 1400)], 0, batch_size=100))


def test_a_missing_fifo_and_a_missing_writer_end_after_the_deadline(tmp_path: Path, piped: Path) -> None:
    reader = PipeReader(tmp_path, "train", share((0, 1, 2), 5500), read_manifest(piped), deadline_s=0.3)
    with pytest.raises(InvalidRecords, match=r"train_0: no such FIFO for 0\.3 s"):
        next(reader.chunks(0))
    os.mkfifo(tmp_path / "train_0")
    with pytest.raises(InvalidRecords, match=r"train_0: no data for 0\.3 s; the writer is missing or hangs"):
        next(reader.chunks(0))
    writer = os.open(tmp_path / "train_0", os.O_RDWR)
    try:
        os.write(writer, stream(piped, (0,))[:100])
        with pytest.raises(InvalidRecords, match=r"train_0: no data for 0\.3 s; the writer is missing or hangs"):
            next(reader.chunks(0))
    finally:
        os.close(writer)
    (tmp_path / "train_1").write_bytes(b"")
    with pytest.raises(InvalidRecords, match="train_1: not a FIFO"):
        next(reader.chunks(1))
