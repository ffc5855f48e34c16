"""Pipe mode: the records of a channel from SageMaker's FIFOs, `<channel>_<epoch>`, one after the other.

The FIFO of an epoch is opened only when the one before was read to its end: SageMaker makes them in that order. Whatever comes is
checked as a file would be (framing, checksums, rows), and counted against the manifest. Nothing waits for ever: a FIFO that does
not appear, that nobody writes to, or that falls silent is an error after a deadline.

TensorFlow cannot read a FIFO (its reader seeks), and two readers on one would each get some of the bytes. So one Python reader a
worker gives tf.data whole blocks, never rows.

Source: docs.aws.amazon.com, "How Amazon SageMaker provides training information", for the names; pipe(7), poll(2).
"""

import io
import os
import select
import time
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import tensorflow as tf

from components.errors import InvalidRecords
from components.framing import read_framed
from components.manifest import Manifest
from components.records import BLOCK_ROWS, check_batch, check_example, decode_block
from components.train.program.division import Share

POLL_S = 0.2
READ_BYTES = 1 << 20
# Chunks of examples that TensorFlow may still be parsing; the wrong one among them must be found when it complains.
RECENT_CHUNKS = 16


class _Fifo(io.RawIOBase):
    """Reads of a FIFO that end at a deadline."""

    def __init__(self, path: Path, deadline_s: float) -> None:
        self._path, self._deadline_s = path, deadline_s
        give_up = time.monotonic() + deadline_s
        while not path.exists():
            if time.monotonic() > give_up:
                raise InvalidRecords(f"{path}: no such FIFO for {deadline_s:g} s; is the channel in Pipe mode, and its data there?")
            time.sleep(min(POLL_S, deadline_s / 10))
        if not path.is_fifo():
            raise InvalidRecords(f"{path}: not a FIFO; Pipe mode reads the FIFOs that SageMaker makes, use File mode for files")
        # Opening would otherwise wait for a writer, for ever.
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Bytes as soon as there are some; 0 when the writer has closed. Linux tells of that only when there was a writer."""
        if not self._poll.poll(self._deadline_s * 1000):
            raise InvalidRecords(f"{self._path}: no data for {self._deadline_s:g} s; the writer is missing or hangs")
        return os.readv(self._descriptor, [buffer])

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()


class PipeReader:
    """The epochs of one channel."""

    def __init__(self, folder: Path, channel: str, share: Share, manifest: Manifest, deadline_s: float) -> None:
        self._folder, self._channel, self._share = folder, channel, share
        self._schema, self._encoding = manifest.schema, manifest.encoding
        self._deadline_s = deadline_s
        self._failure: InvalidRecords | None = None
        self._recent: deque[tuple[str, int, list[bytes]]] = deque(maxlen=RECENT_CHUNKS)

    def chunks(self, epoch: int) -> Iterator[bytes | list[bytes]]:
        """What a decoder of decoding.py takes: a block, or up to BLOCK_ROWS examples.

        Raises:
            InvalidRecords: naming channel, epoch and record.
        """
        path = self._folder / f"{self._channel}_{epoch}"
        expected, exact = self._share.rows, self._share.shards is not None
        found = 0
        with io.BufferedReader(_Fifo(path, self._deadline_s), READ_BYTES) as fifo:
            records = enumerate(read_framed(cast(BinaryIO, fifo), str(path)))
            while chunk := list(islice(records, 1 if self._encoding == "blocks" else BLOCK_ROWS)):
                first, payloads = chunk[0][0], [payload for _, payload in chunk]
                if self._encoding == "blocks":
                    place = f"{path}, record {first}"
                    block = decode_block(payloads[0], place)
                    check_batch(block, self._schema, place)
                    found += len(block)
                else:
                    self._recent.append((str(path), first, payloads))
                    found += len(payloads)
                if exact and found > expected:
                    raise InvalidRecords(f"{path}, record {first}: more than the {expected} rows of the manifest; {self._holds()}")
                yield payloads[0] if self._encoding == "blocks" else payloads
        if found < expected:
            least = "" if exact else "at least "
            raise InvalidRecords(f"{path}: ended after {found} rows, the manifest says {least}{expected}; {self._holds()}")

    def _holds(self) -> str:
        shards = self._share.shards
        if shards is None:
            return "S3 must give every host the same number of files, or one more"
        listed = ", ".join(map(str, shards[:20])) + (" ..." if len(shards) > 20 else "")
        return f"channel {self._channel} must hold train shards {listed} of it"

    def payloads(self, epoch: Any) -> Any:
        """A tf.data.Dataset of the chunks of an epoch, counted from 0 in each job and each restart of it."""

        def generate(number: Any) -> Iterator[bytes | list[bytes]]:
            try:
                yield from self.chunks(int(number))
            except InvalidRecords as error:
                # TensorFlow turns it into an error of its own.
                self._failure = error
                raise

        shape = [] if self._encoding == "blocks" else [None]
        return tf.data.Dataset.from_generator(generate, args=(epoch,), output_signature=tf.TensorSpec(shape, tf.string))

    def explain(self) -> InvalidRecords | None:
        """What was wrong with the stream, when TensorFlow has stopped for an error."""
        # Reading is ahead of parsing: what was handed on before may be the first that is wrong.
        for path, first, payloads in self._recent:
            for record, payload in enumerate(payloads, first):
                try:
                    check_example(payload, self._schema, f"{path}, record {record}")
                except InvalidRecords as error:
                    return error
        return self._failure
