"""The batches of a training, from the shards of a dataset.

Order: read -> shuffle -> batch -> map (whole batches, never rows) -> repeat (by epoch) -> prefetch. The order of rows depends on
seed and epoch only, so that every strategy sees the same global batches: worker w of n takes rows [w*B, (w+1)*B) of each global
batch of n*B rows. The rows that do not fill a last global batch of an epoch are left out and counted.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from components.errors import InvalidConfig, InvalidRecords
from components.manifest import Manifest, read_manifest, read_split
from components.records import BLOCK_HEADER, BLOCK_MAGIC, BLOCK_ROWS, BLOCK_VERSION, Encoding
from components.train.program.config import TrainConfig

# Rows that are shuffled among each other when a file holds one row a record; blocks are shuffled whole and inside.
SHUFFLE_ROWS = 4 * BLOCK_ROWS
HEADER_WORDS = BLOCK_HEADER.size // 4


@dataclass(frozen=True, kw_only=True)
class Source:
    """The training rows of a job: files in manifest order and what they hold. `click_rate` is never quite 0 or 1."""

    files: tuple[str, ...]
    examples: int
    field_size: int
    feature_size: int
    click_rate: float
    encoding: Encoding


@dataclass(frozen=True, kw_only=True)
class Division:
    """How the rows are divided: worker `rank` of `size`, `steps` global batches, `left_out` rows of each epoch unused."""

    rank: int
    size: int
    batch_size: int
    steps: int
    steps_per_epoch: int
    left_out: int


def find_source(data: Path, config: TrainConfig) -> tuple[Source, Manifest]:
    """Check channels `manifest` and `train` against each other and against the hyperparameters.

    Raises:
        InvalidRecords: a shard is missing or of another size than the manifest says.
        InvalidConfig: field_size or feature_size differ from the dataset's.
    """
    manifest = read_manifest(data / "manifest")
    schema = manifest.schema
    for name in ("field_size", "feature_size"):
        declared, found = getattr(config, name), getattr(schema, name)
        if declared not in (0, found):
            raise InvalidConfig(f"hyperparameter {name} {declared}: the dataset has {found}; leave it out or make them agree")
    files = []
    for shard in manifest.train.shards:
        path = data / shard.path
        if not path.is_file():
            raise InvalidRecords(f"{path}: missing; the manifest lists it with {shard.examples} rows")
        if path.stat().st_size != shard.bytes:
            raise InvalidRecords(f"{path}: {path.stat().st_size} bytes, the manifest says {shard.bytes}; preprocess again")
        files.append(str(path))
    source = Source(
        files=tuple(files),
        examples=manifest.train.examples,
        field_size=schema.field_size,
        feature_size=schema.feature_size,
        click_rate=(manifest.train.positives + 1) / (manifest.train.examples + 2),
        encoding=manifest.encoding,
    )
    return source, manifest


def divide(source: Source, config: TrainConfig, rank: int, size: int) -> Division:
    """Equal work for every worker.

    Raises:
        InvalidConfig: one global batch takes more rows than there are.
    """
    global_batch = config.batch_size * size
    steps_per_epoch, left_out = divmod(source.examples, global_batch)
    if steps_per_epoch == 0:
        raise InvalidConfig(
            f"batch_size {config.batch_size} on {size} workers takes {global_batch} rows a step, "
            f"the train split has {source.examples}; "
            "lower batch_size or the number of workers"
        )
    return Division(
        rank=rank,
        size=size,
        batch_size=config.batch_size,
        steps=config.steps or config.epochs * steps_per_epoch,
        steps_per_epoch=steps_per_epoch,
        left_out=left_out,
    )


def _decode_block(payload: Any, index: Any, field_size: int, seed: Any) -> tuple[Any, Any, Any]:
    """Labels [n], ids [n, F] and values [n, F] of one block, its rows in an order drawn from `seed` and its index."""
    words = tf.io.decode_raw(payload, tf.int32, little_endian=True)
    rows, cells = words[2], words[2] * field_size
    header = tf.stack([BLOCK_MAGIC, BLOCK_VERSION, rows, field_size])
    with tf.control_dependencies([tf.debugging.assert_equal(words[:HEADER_WORDS], header, "not a block of this dataset")]):
        order = tf.random.experimental.stateless_shuffle(tf.range(rows), seed=tf.stack([seed, index]))
    labels = tf.bitcast(words[HEADER_WORDS : HEADER_WORDS + rows], tf.float32)
    ids = tf.reshape(words[HEADER_WORDS + rows : HEADER_WORDS + rows + cells], [rows, field_size])
    values = tf.bitcast(tf.reshape(words[HEADER_WORDS + rows + cells :], [rows, field_size]), tf.float32)
    return tf.gather(labels, order), tf.gather(ids, order), tf.gather(values, order)


def _parse_examples(serialized: Any, field_size: int) -> tuple[Any, Any, Any]:
    """Labels [n], ids [n, F] and values [n, F] of whole batches of tf.train.Example."""
    features = {
        "label": tf.io.FixedLenFeature([], tf.float32),
        "ids": tf.io.FixedLenFeature([field_size], tf.int64),
        "values": tf.io.FixedLenFeature([field_size], tf.float32),
    }
    row = tf.io.parse_example(serialized, features)
    return row["label"], tf.cast(row["ids"], tf.int32), row["values"]


def _epoch(source: Source, global_batch: int, files: Any, seed: Any) -> Any:
    """Global batches of one epoch: labels float32 [G], ids int32 [G, F], values float32 [G, F]."""
    records = tf.data.TFRecordDataset(files, buffer_size=4 << 20)
    if source.encoding == "blocks":
        blocks = records.enumerate().map(
            lambda index, payload: _decode_block(payload, index, source.field_size, seed), num_parallel_calls=tf.data.AUTOTUNE
        )
        return blocks.rebatch(global_batch, drop_remainder=True)
    shuffled = records.shuffle(SHUFFLE_ROWS, seed=seed, reshuffle_each_iteration=False)
    batches = shuffled.batch(global_batch, drop_remainder=True)
    return batches.map(lambda serialized: _parse_examples(serialized, source.field_size), num_parallel_calls=tf.data.AUTOTUNE)


def batches(source: Source, division: Division, seed: int, begun: int = 0) -> Any:
    """A tf.data.Dataset of this worker's batches after the first `begun` of `division.steps`: labels float32 [B], ids
    int32 [B, F], values float32 [B, F].
    """
    size, batch = division.size, division.batch_size
    epochs = -(-division.steps // division.steps_per_epoch)
    orders = [
        [source.files[index] for index in np.random.default_rng((seed, e)).permutation(len(source.files))] for e in range(epochs)
    ]
    seeds = [seed * 1_000_003 + epoch for epoch in range(epochs)]
    plan = tf.data.Dataset.from_tensor_slices((tf.constant(orders), tf.constant(seeds, tf.int64)))
    dataset = plan.flat_map(lambda files, epoch_seed: _epoch(source, size * batch, files, epoch_seed))
    start = division.rank * batch

    def own(labels: Any, ids: Any, values: Any) -> tuple[Any, Any, Any]:
        labels = tf.ensure_shape(labels[start : start + batch], [batch])
        ids = tf.ensure_shape(ids[start : start + batch], [batch, source.field_size])
        return labels, ids, tf.ensure_shape(values[start : start + batch], [batch, source.field_size])

    options = tf.data.Options()
    # One reader in a fixed order is what makes all workers agree on what a global batch is.
    options.deterministic = True
    return dataset.skip(begun).take(division.steps - begun).map(own).prefetch(4).with_options(options)


def explain_damage(data: Path, manifest: Manifest, error: Exception) -> InvalidRecords:
    """Name file and record of what TensorFlow's reader could not read; it names neither."""
    try:
        for _ in read_split(data, manifest, "train"):
            pass
    except InvalidRecords as found:
        return found
    return InvalidRecords(f"{data / 'train'}: {type(error).__name__}: {str(error).splitlines()[0]}")
