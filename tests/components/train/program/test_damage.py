"""One changed byte of a shard never trains: it is refused before the first step or by the reader, and then named by file."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from components.errors import InvalidRecords
from components.records import ENCODINGS, Encoding
from components.train.program.channels import Channels
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Division, Share, divide
from components.train.program.input import batches, explain_damage, find_source, read_files

CHANNEL = Channels(names=("train",), input_mode="File", by_host=False)
CONFIG = TrainConfig(batch_size=5)
ROWS = 10


def container_of(folder: Path, dataset: Path) -> Container:
    """A host that has the dataset in its channels."""
    container = Container(base=folder / "host", hosts=("algo-1",), current_host="algo-1", network_interface="lo")
    (container.data / "manifest").mkdir(parents=True)
    (container.data / "manifest/manifest.json").write_bytes((dataset / "manifest.json").read_bytes())
    (container.data / "train").symlink_to(dataset / "train")
    return container


def whole() -> Division:
    return divide([Share(place="algo-1", shards=(0,), rows=ROWS, readers=1, index=0)], CONFIG, 0, ROWS)


def rows_trained_on(container: Container) -> int:
    source, _, _ = find_source(container, CONFIG, CHANNEL, 0)
    found = batches(read_files(source.files, source.encoding), source, whole(), CONFIG.seed)
    return sum(len(labels) for labels, _, _ in found.as_numpy_iterator())


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_single_changed_byte_is_refused(encoding: Encoding, make_dataset: Callable[..., Path]) -> None:
    with TemporaryDirectory() as folder:
        dataset = make_dataset(Path(folder) / "set", encoding, (ROWS,))
        container = container_of(Path(folder), dataset)
        assert rows_trained_on(container) == ROWS
        source, _, manifest = find_source(container, CONFIG, CHANNEL, 0)
        path = dataset / "train/part-00000.tfrecord"
        sound = path.read_bytes()

        @settings(max_examples=15, deadline=None)
        @given(position=st.integers(0, len(sound) - 1), mask=st.integers(1, 255))
        def check(position: int, mask: int) -> None:
            path.write_bytes(sound[:position] + bytes([sound[position] ^ mask]) + sound[position + 1 :])
            errors: tuple[Any, ...] = (InvalidRecords, tf.errors.DataLossError)
            with pytest.raises(errors) as caught:
                rows_trained_on(container)
            named = caught.value if isinstance(caught.value, InvalidRecords) else explain_damage(source, manifest)
            assert "train/part-00000.tfrecord" in str(named)

        check()
