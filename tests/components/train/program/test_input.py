"""The batches that are really read: every row exactly once an epoch, whoever reads, from whatever encoding, cached or not."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.errors import InvalidConfig, InvalidRecords
from components.records import ENCODINGS, SUFFIXES, Batch, Encoding, Schema, read_shard, write_shard
from components.resources import UsableMemory
from components.train.program.channels import Channels
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division, Share, divide
from components.train.program.input import Source, batches, check_memory, explain_damage, find_source, fits_cache, read_files

SHARED = Path(__file__).parents[5] / "shared" / "cases" / "16-uneven-and-missing-shards"
FIELDS, TABLE = 4, 500
FILE_CHANNEL = Channels(names=("train",), input_mode="File", by_host=False)

Row = tuple[float, tuple[int, ...], tuple[float, ...]]


def rows(count: int) -> Batch:
    """Rows that differ: the first id is the number of the row."""
    draw = np.random.default_rng(4)
    ids = draw.integers(0, TABLE, (count, FIELDS))
    ids[:, 0] = np.arange(count)
    values = np.float32([0.1, 1.0, -2.5e-7, 33.0]) * draw.random((count, FIELDS), np.float32)
    return Batch(labels=(draw.random(count) < 0.3).astype(np.float32), ids=ids, values=values)


def as_rows(parts: Iterable[Any]) -> list[Row]:
    """Labels, ids and values of batches, row by row, hashable."""
    return [
        (float(label), tuple(map(int, ids)), tuple(map(float, values)))
        for part in parts
        for label, ids, values in zip(*part, strict=True)
    ]


def source_of(folder: Path, encoding: Encoding, sizes: Sequence[int]) -> tuple[Source, list[Row]]:
    """Shards of the given sizes, and what is in them."""
    data, start, files = rows(sum(sizes)), 0, []
    for index, size in enumerate(sizes):
        path = folder / f"part-{index:05d}{SUFFIXES[encoding]}"
        write_shard(path, data.rows(slice(start, start + size)), encoding)
        files.append(str(path))
        start += size
    source = Source(files=tuple(files), examples=start, field_size=FIELDS, feature_size=TABLE, click_rate=0.3, encoding=encoding)
    return source, as_rows([(data.labels, data.ids, data.values)])


def read(
    source: Source, division: Division, seed: int = 1, begun: int = 0, *, cached: bool = False, how: TrainConfig | None = None
) -> list[list[Row]]:
    """The batches of one worker."""
    payloads = read_files(source.files, source.encoding, how.parallel_reads if how else 0)
    found = batches(payloads, source, division, seed, begun, cached=cached, how=how).as_numpy_iterator()
    return [as_rows([batch]) for batch in found]


def everyone(source: Source, workers: int, config: TrainConfig) -> list[Division]:
    shares = [Share(place="algo-1", shards=(0,), rows=source.examples, readers=workers, index=worker) for worker in range(workers)]
    return [divide(shares, config, worker, source.examples) for worker in range(workers)]


@pytest.mark.parametrize(
    ("encoding", "workers"),
    [("blocks", 1), ("blocks", 3), ("blocks", 4), ("blocks", 8), ("examples", 3), ("libsvm", 3)],
)
def test_uneven_and_empty_shards_over_two_epochs(tmp_path: Path, encoding: Encoding, workers: int) -> None:
    source, expected = source_of(tmp_path, encoding, (7, 5, 1, 0))
    divisions = everyone(source, workers, TrainConfig(batch_size=2, epochs=2))
    found = [read(source, division) for division in divisions]
    for epoch in range(2):
        steps = divisions[0].steps_per_epoch
        parts = [worker[epoch * steps : (epoch + 1) * steps] for worker in found]
        assert [len(part) for part in parts] == [steps] * workers
        assert all(len(batch) == 2 for part in parts for batch in part)
        used = Counter(row for part in parts for batch in part for row in batch)
        assert used.keys() <= set(expected)
        assert (len(used), used.total()) == (divisions[0].used, steps * workers * 2)
        if workers == 8:
            # Rows of one worker alone, before any is used again: 13 over 8 workers.
            assert sorted(used.values()) == [1] * 10 + [2] * 3
            first = [batch[0] for part in parts for batch in part]
            assert len(set(first)) == 8  # every worker has a row of its own
    assert [len(worker) for worker in found] == [divisions[0].steps] * workers


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared is not there")
@pytest.mark.parametrize(("workers", "used"), [(3, 12), (8, 13)])
def test_the_shared_uneven_shards(workers: int, used: int) -> None:
    files = sorted(SHARED.glob("part-*.tfrecords"))
    schema = Schema(field_size=FIELDS, feature_size=TABLE)
    expected = Counter(as_rows((b.labels, b.ids, b.values) for file in files for b in read_shard(file, schema, "examples")))
    assert expected.total() == 13
    source = Source(
        files=tuple(map(str, files)), examples=13, field_size=FIELDS, feature_size=TABLE, click_rate=0.3, encoding="examples"
    )
    divisions = everyone(source, workers, TrainConfig(batch_size=2))
    found = Counter(row for division in divisions for batch in read(source, division) for row in batch)
    assert (divisions[0].used, divisions[0].left_out) == (used, 13 - used)
    if divisions[0].repeated:
        assert found.keys() == expected.keys()
        assert (found - expected).total() == divisions[0].repeated == 3
    else:
        assert found.total() == used
        assert not found - expected


@pytest.mark.parametrize("workers", [2, 4])
def test_all_workers_together_see_the_global_batches_of_one(tmp_path: Path, workers: int) -> None:
    """Blocks of several files, two epochs, an epoch that does not end with a block."""
    source, _ = source_of(tmp_path, "blocks", (200, 93, 107))
    alone = read(source, everyone(source, 1, TrainConfig(batch_size=32, epochs=2))[0])
    found = [read(source, division) for division in everyone(source, workers, TrainConfig(batch_size=32 // workers, epochs=2))]
    assert [[row for part in parts for row in part] for parts in zip(*found, strict=True)] == alone


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_files_read_side_by_side_give_every_row_once_in_one_order_for_all(tmp_path: Path, encoding: Encoding) -> None:
    source, expected = source_of(tmp_path, encoding, (120, 80, 56))
    how = TrainConfig(parallel_reads=3, map_parallelism=2, prefetch_batches=2)
    alone = read(source, everyone(source, 1, TrainConfig(batch_size=64))[0], how=how)
    assert sorted(row for batch in alone for row in batch) == sorted(expected)
    both = [read(source, division, how=how) for division in everyone(source, 2, TrainConfig(batch_size=32))]
    assert [first + second for first, second in zip(*both, strict=True)] == alone


def test_an_epoch_filled_up_is_the_same_whatever_the_number_of_workers(tmp_path: Path) -> None:
    source, _ = source_of(tmp_path, "blocks", (9, 4))
    (alone,) = read(source, everyone(source, 1, TrainConfig(batch_size=16))[0])
    found = [read(source, division) for division in everyone(source, 8, TrainConfig(batch_size=2))]
    assert Counter(row for (batch,) in found for row in batch) == Counter(alone)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_order_depends_on_seed_and_epoch_only(tmp_path: Path, encoding: Encoding) -> None:
    source, expected = source_of(tmp_path, encoding, (150, 100))
    (division,) = everyone(source, 1, TrainConfig(batch_size=50, epochs=3))
    streamed = read(source, division)
    assert read(source, division, cached=True) == streamed
    assert read(source, division, begun=7) == streamed[7:]
    assert read(source, division, begun=5, cached=True) == streamed[5:]
    epochs = [[row for batch in streamed[start : start + 5] for row in batch] for start in (0, 5, 10)]
    assert all(sorted(epoch) == sorted(expected) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != expected
    assert read(source, division, seed=2) != streamed


def test_cached_rows_are_not_read_again(tmp_path: Path) -> None:
    source, expected = source_of(tmp_path, "blocks", (60, 40))
    (division,) = everyone(source, 1, TrainConfig(batch_size=20, epochs=2))
    found = iter(batches(read_files(source.files, "blocks"), source, division, 1, cached=True))
    first = [next(found) for _ in range(5)]
    for file in source.files:
        Path(file).unlink()
    second = list(found)
    assert sorted(as_rows(first)) == sorted(as_rows(second)) == sorted(expected)


def test_text_that_was_changed_is_refused_before_training(tmp_path: Path, make_dataset: Callable[..., Path]) -> None:
    """Lines have no checksums: one digit for another gives a row like any other, of the same size."""
    dataset = make_dataset(tmp_path / "set", "libsvm", (30, 20))
    container = Container(base=tmp_path / "host", hosts=("algo-1",), current_host="algo-1", network_interface="lo")
    (container.data / "manifest").mkdir(parents=True)
    (container.data / "manifest/manifest.json").write_bytes((dataset / "manifest.json").read_bytes())
    (container.data / "train").symlink_to(dataset / "train")
    source, _, manifest = find_source(container, TrainConfig(), FILE_CHANNEL, 0)
    assert (source.encoding, source.examples) == ("libsvm", 50)
    assert explain_damage(source, manifest) is None
    victim = dataset / "train/part-00001.tfrecord"
    text = victim.read_text()
    victim.write_text(("1" if text[0] == "0" else "0") + text[1:])
    with pytest.raises(InvalidRecords, match=r"part-00001\.tfrecord: its SHA-256 differs from the manifest's"):
        find_source(container, TrainConfig(), FILE_CHANNEL, 0)
    victim.write_text("x" + text[1:])
    assert "part-00001.tfrecord, line 1: not label id:value" in str(explain_damage(source, manifest))


GB = 10**9


@pytest.mark.parametrize(
    ("epochs", "workers", "examples", "memory", "cached", "why"),
    [
        # 10 million rows of 4 bytes a label and 8 a field of 39 take 3.16 GB.
        (
            2,
            1,
            10_000_000,
            11 * GB,
            True,
            "10000000 rows for each of 1 workers take 3.16 GB, within 30% of 11 GB (cgroup v2 limit)",
        ),
        (2, 1, 10_000_000, 10 * GB, False, "take 3.16 GB, more than 30% of 10 GB (cgroup v2 limit)"),
        (2, 2, 10_000_000, 11 * GB, False, "rows for each of 2 workers take 6.32 GB, more than 30% of 11 GB"),
        (1, 1, 10_000_000, 99 * GB, False, "one epoch; 10000000 rows for each of 1 workers take 3.16 GB"),
    ],
)
def test_rows_are_kept_when_they_fit_and_there_is_another_epoch(
    epochs: int, workers: int, examples: int, memory: int, cached: bool, why: str
) -> None:
    source = Source(files=(), examples=examples, field_size=39, feature_size=9, click_rate=0.3, encoding="blocks")
    config = TrainConfig(strategy="horovod", workers_per_host=workers, epochs=epochs)
    found = fits_cache(source, everyone(source, workers, config)[0], config, FILE_CHANNEL, UsableMemory(memory, "cgroup v2 limit"))
    assert found[0] is cached
    assert why in found[1]


def test_a_probe_caches_as_the_training_would_that_it_stands_for() -> None:
    source = Source(files=(), examples=10_000, field_size=39, feature_size=9, click_rate=0.3, encoding="blocks")
    config = TrainConfig(steps=20_000, probe="both", epochs=1)
    memory = UsableMemory(16 * GB, "host")
    assert not fits_cache(source, everyone(source, 1, config)[0], config, FILE_CHANNEL, memory)[0]
    config = replace(config, probe="none")
    assert fits_cache(source, everyone(source, 1, config)[0], config, FILE_CHANNEL, memory)[0]


@pytest.mark.parametrize(("cache", "kept"), [("on", True), ("off", False)])
def test_a_cache_that_is_set_is_not_chosen(tmp_path: Path, cache: Any, kept: bool) -> None:
    source, _ = source_of(tmp_path, "blocks", (100,))
    config = TrainConfig(cache=cache, epochs=2)
    memory = UsableMemory(GB if cache == "off" else 1, "host")
    assert fits_cache(source, everyone(source, 1, config)[0], config, FILE_CHANNEL, memory)[0] is kept


def test_shuffle_buffers_are_bounded_and_refused_where_they_do_not_fit() -> None:
    source = Source(files=(), examples=9, field_size=39, feature_size=9, click_rate=0.3, encoding="blocks")
    assert source.shuffle_blocks == 16
    wide = replace(source, field_size=1000)
    # 4096 rows of 8004 bytes are 33 MB: two of them within 64 MiB.
    assert wide.shuffle_blocks == 2
    check_memory(wide, 2, UsableMemory(16 * GB, "host"))
    with pytest.raises(
        InvalidConfig, match=r"field_size 1000: blocks on their way take 0.328 GB on a host of 2 workers, more than 10%"
    ):
        check_memory(wide, 2, UsableMemory(3 * GB, "cgroup v1 limit"))
