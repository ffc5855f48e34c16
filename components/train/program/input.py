"""The batches of a training, from the shards of a dataset.

Order: read -> cache -> shuffle -> batch -> map (whole blocks and batches, never rows) -> repeat (by epoch) -> prefetch. A block is
up to BLOCK_ROWS rows that follow each other in the data. In each epoch blocks are shuffled among SHUFFLE_BLOCKS, then rows in their
block, by seed and epoch only: readers of the same rows agree on what their global batches are (division.py), cached or not.

Every reader decodes all rows that it shares with others, and takes its own from them. That costs half a microsecond of CPU a row
from `blocks`, 3 from `examples`, 12 from `libsvm` (tests/benchmarks/README.md). Of 8 readers at 50,000 examples/s each, it is a
fifth of a core for each from `blocks`, and more than a core for each from the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from components.errors import InvalidConfig, InvalidRecords
from components.manifest import Manifest, read_manifest
from components.records import BLOCK_ROWS, Encoding, Schema, read_shard
from components.resources import UsableMemory
from components.train.program.channels import Channels
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.decoding import DECODERS, check_columns
from components.train.program.division import Division
from components.train.program.export import file_digest
from components.train.program.layout import Layout, find_layout
from components.train.program.traced import as_it_stands

# Blocks that are shuffled among each other, fewer where rows are wide. The order of rows must not depend on a host's memory.
SHUFFLE_BLOCKS, SHUFFLE_BYTES = 16, 64 << 20
# Of a host's memory, what decoded blocks on their way may take, and decoded rows that are kept for the next epoch. The embedding
# table may take 0.4 (placement.py).
SHUFFLE_SHARE, CACHE_SHARE = 0.1, 0.3
# Batches that are ready before they are asked for: one block's worth.
PREFETCH_BATCHES = 4

Payloads = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Source:
    """The training rows of a job, and the files of them that this process reads. `click_rate` is never quite 0 or 1."""

    files: tuple[str, ...]
    examples: int
    field_size: int
    feature_size: int
    click_rate: float
    encoding: Encoding

    @property
    def row_bytes(self) -> int:
        """A decoded row in memory."""
        return 4 * (1 + 2 * self.field_size)

    @property
    def shuffle_blocks(self) -> int:
        return max(min(SHUFFLE_BLOCKS, SHUFFLE_BYTES // (BLOCK_ROWS * self.row_bytes)), 1)


def find_source(container: Container, config: TrainConfig, channels: Channels, local_rank: int) -> tuple[Source, Layout, Manifest]:
    """Check channel `manifest` and this process's channel of train shards against each other and against the hyperparameters.

    Raises:
        InvalidRecords: a shard is missing, or of another size, or as text of another digest, than the manifest says.
        InvalidConfig: field_size or feature_size differ from the dataset's, or a layout that cannot be trained on.
    """
    manifest = read_manifest(container.data / "manifest")
    schema = manifest.schema
    for name in ("field_size", "feature_size"):
        declared, found = getattr(config, name), getattr(schema, name)
        if declared not in (0, found):
            raise InvalidConfig(f"hyperparameter {name} {declared}: the dataset has {found}; leave it out or make them agree")
    if channels.input_mode == "Pipe" and manifest.encoding == "libsvm":
        raise InvalidConfig("Pipe mode: text has no checksums to trust a stream by; use encoding blocks or examples")
    layout = find_layout(container, config, channels, manifest, local_rank)
    share = layout.own()
    files = () if channels.input_mode == "Pipe" else layout.files(share, layout.folder(local_rank))
    for shard_index, file in zip(share.shards or (), files, strict=False):
        shard, path = manifest.train.shards[shard_index], Path(file)
        if not path.is_file():
            raise InvalidRecords(f"{path}: missing; the manifest lists it with {shard.examples} rows")
        if path.stat().st_size != shard.bytes:
            raise InvalidRecords(f"{path}: {path.stat().st_size} bytes, the manifest says {shard.bytes}; preprocess again")
        if manifest.encoding == "libsvm" and file_digest(path) != shard.sha256:
            # Records have checksums of their own; text has only this one, which costs a hundredth of parsing it.
            raise InvalidRecords(f"{path}: its SHA-256 differs from the manifest's; it was changed, preprocess again")
    source = Source(
        files=files,
        examples=manifest.train.examples,
        field_size=schema.field_size,
        feature_size=schema.feature_size,
        click_rate=(manifest.train.positives + 1) / (manifest.train.examples + 2),
        encoding=manifest.encoding,
    )
    return source, layout, manifest


def check_memory(source: Source, readers: int, memory: UsableMemory) -> None:
    """Refuse rows so wide that the blocks on their way to a batch do not fit.

    Args:
        readers: workers of this host.
    """
    # The shuffle buffer, and a block each being decoded, taken apart and put together.
    needed = readers * (source.shuffle_blocks + 3) * BLOCK_ROWS * source.row_bytes
    if needed > SHUFFLE_SHARE * memory.bytes:
        raise InvalidConfig(
            f"field_size {source.field_size}: blocks on their way take {needed / 1e9:.3g} GB on a host of {readers} workers, "
            f"more than {SHUFFLE_SHARE:.0%} of {memory.bytes / 1e9:.3g} GB ({memory.source}); use larger hosts or fewer workers"
        )


def fits_cache(
    source: Source, division: Division, config: TrainConfig, channels: Channels, memory: UsableMemory
) -> tuple[bool, str]:
    """Whether decoded rows are kept in memory after the first epoch, and why; every worker of a host keeps its own."""
    # A probe repeats a short epoch, to measure what the training does that it stands for.
    epochs = config.epochs if config.probe != "none" else division.epochs
    rows = division.share.rows
    needed, most = config.workers_per_host * rows * source.row_bytes, CACHE_SHARE * memory.bytes
    numbers = f"{rows} rows for each of {config.workers_per_host} workers take {needed / 1e9:.3g} GB"
    room = f"{CACHE_SHARE:.0%} of {memory.bytes / 1e9:.3g} GB ({memory.source})"
    if channels.input_mode == "Pipe":
        return False, f"Pipe mode reads every epoch; {numbers}"
    if epochs < 2:
        return False, f"one epoch; {numbers}"
    if config.cache != "auto":
        return config.cache == "on", f"as set; {numbers}"
    return needed <= most, f"{numbers}, {'within' if needed <= most else 'more than'} {room}"


def read_files(files: Sequence[str], encoding: Encoding, parallel_reads: int = 0) -> Payloads:
    """A reader of files, the same in every epoch: a dataset whose elements a decoder of decoding.py takes.

    Args:
        parallel_reads: files that are read side by side, their records in turn; 0 or 1 is one after the other.
    """
    kind = tf.data.TextLineDataset if encoding == "libsvm" else tf.data.TFRecordDataset
    side_by_side = min(parallel_reads, len(files))

    def read(names: Any) -> Any:
        return kind(names, buffer_size=4 << 20)

    def payloads(read_before: Any) -> Any:
        names = list(files)
        if side_by_side > 1:
            # In turn and never as they come: all workers must see the same order.
            of_names = tf.data.Dataset.from_tensor_slices(names)
            records = of_names.interleave(read, side_by_side, num_parallel_calls=side_by_side, deterministic=True)
        else:
            records = read(names)
        return records if encoding == "blocks" else records.batch(BLOCK_ROWS)

    return payloads


@as_it_stands
def batches(
    payloads: Payloads,
    source: Source,
    division: Division,
    seed: int,
    begun: int = 0,
    *,
    cached: bool = False,
    how: TrainConfig | None = None,
) -> Any:
    """A tf.data.Dataset of this worker's batches after the first `begun` of `division.steps`: labels float32 [B], ids
    int32 [B, F], values float32 [B, F].

    Args:
        payloads: from the number of epochs that were read before, in this process, to the records of the next one; with `cached`
            it is called once.
        how: numbers of threads and batches that are not as below.
    """
    how = how or TrainConfig()
    share, batch, fields = division.share, division.batch_size, source.field_size
    wanted = division.steps_per_epoch * share.readers * batch
    # Fewer rows than one batch for every reader: all of them, some used again.
    filled, taken = share.rows < wanted, min(share.rows, wanted)
    position_B = (share.index + share.readers * tf.range(batch, dtype=tf.int64)) % max(share.rows, 1)
    parallel = how.map_parallelism or (None if source.encoding == "blocks" else tf.data.AUTOTUNE)

    def decode(payload: Any) -> Any:
        columns = DECODERS[source.encoding](payload, fields)
        # Blocks were checked when they were written, and have had a checksum since.
        return columns if source.encoding == "blocks" else check_columns(columns, source.feature_size)

    def place(start: Any, columns: Any) -> Any:
        """Where in the epoch a block starts."""
        rows = tf.shape(columns[0], out_type=tf.int64)[0]
        return start + rows, (start, *columns)

    def own_rows(start: Any, labels: Any, ids: Any, values: Any, epoch_seed: Any) -> Any:
        """The rows of a block that this reader takes, in the order of the epoch."""
        rows = tf.shape(labels, out_type=tf.int64)[0]
        order = tf.random.experimental.stateless_shuffle(tf.range(rows), seed=tf.stack([epoch_seed, start]))
        order = order[: tf.clip_by_value(taken - start, 0, rows)]
        if share.readers > 1 and not filled:
            position = start + tf.range(tf.size(order, out_type=tf.int64))
            order = tf.boolean_mask(order, position // batch % share.readers == share.index)
        return tf.gather(labels, order), tf.gather(ids, order), tf.gather(values, order)

    def fill(*columns: Any) -> Any:
        return tuple(tf.gather(column, position_B) for column in columns)

    def shaped(labels: Any, ids: Any, values: Any) -> Any:
        return tf.ensure_shape(labels, [batch]), tf.ensure_shape(ids, [batch, fields]), tf.ensure_shape(values, [batch, fields])

    def blocks(read_before: Any) -> Any:
        return payloads(read_before).map(decode, num_parallel_calls=parallel)

    first = begun // division.steps_per_epoch
    kept = blocks(0).cache() if cached else None

    def one_epoch(epoch: Any) -> Any:
        epoch_seed = seed * 1_000_003 + epoch
        # SageMaker counts the FIFOs of a resumed job from 0 again.
        read = blocks(epoch - first) if kept is None else kept
        shuffled = read.shuffle(source.shuffle_blocks, seed=epoch_seed, reshuffle_each_iteration=False)
        placed = shuffled.scan(tf.constant(0, tf.int64), place)
        rows = placed.map(lambda start, labels, ids, values: own_rows(start, labels, ids, values, epoch_seed))
        whole = rows.rebatch(taken if filled else batch, drop_remainder=True)
        whole = whole.map(fill) if filled else whole
        # Fewer rows than the manifest says would shift all epochs that follow.
        return whole.map(shaped).apply(tf.data.experimental.assert_cardinality(division.steps_per_epoch))

    options = tf.data.Options()
    # One reader in a fixed order is what makes all workers agree on what a global batch is.
    options.deterministic = True
    # The step has the threads of the process; reading has its own, and does not wait for them.
    least = 1 if source.encoding == "blocks" else 2
    options.threading.private_threadpool_size = max(least, how.map_parallelism, min(how.parallel_reads, len(source.files)))
    epochs = tf.data.Dataset.range(first, division.epochs).flat_map(one_epoch)
    rest = epochs.skip(begun % division.steps_per_epoch).take(division.steps - begun)
    return rest.prefetch(how.prefetch_batches or PREFETCH_BATCHES).with_options(options)


def explain_damage(source: Source, manifest: Manifest) -> InvalidRecords | None:
    """Name file and record of what TensorFlow's reader could not read, which names neither; None when all is as it should be."""
    rows = {Path(shard.path).name: shard.examples for shard in manifest.train.shards}
    schema = Schema(field_size=source.field_size, feature_size=source.feature_size)
    try:
        for file in source.files:
            found = sum(len(batch) for batch in read_shard(Path(file), schema, source.encoding))
            if found != rows[Path(file).name]:
                return InvalidRecords(f"{file}: {found} rows found, the manifest says {rows[Path(file).name]}; preprocess again")
    except InvalidRecords as found_damage:
        return found_damage
    return None
