"""Pipe mode of the local endpoint: FIFOs `<channel>_<epoch>`, fed by a thread, as the service feeds them.

An epoch's FIFO is there when the one before was written or its reader has left it; through it go the channel's objects, one
after the other. There is no last epoch: the job's end is the end.
"""

import logging
import os
import select
import threading
from collections.abc import Sequence
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from pipelines.local.transfers import open_object

LOG = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 16
POLL_S = 0.02


class Feeder:
    """Writes one channel of one host, from `start` to `stop`.

    Args:
        channel: the path without _<epoch>. objects: as `channel_objects` names them, in their order.
    """

    def __init__(self, channel: Path, objects: Sequence[str]) -> None:
        self._channel, self._objects = channel, tuple(objects)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._feed, name=f"feed {channel.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the thread has ended."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def _feed(self) -> None:
        epoch = 0
        while not self._stopped.is_set():
            fifo = self._channel.with_name(f"{self._channel.name}_{epoch}")
            os.mkfifo(fifo)
            try:
                self._feed_epoch(fifo)
            except BrokenPipeError:
                LOG.debug("%s: its reader has left it", fifo)
            except (OSError, ClientError, BotoCoreError):
                LOG.exception("%s: could not be fed", fifo)  # the reader sees its end, and counts
            finally:
                fifo.unlink(missing_ok=True)
            epoch += 1

    def _feed_epoch(self, fifo: Path) -> None:
        descriptor = self._opened(fifo)
        if descriptor is None:
            return
        try:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            for place in self._objects:
                with open_object(place) as content:
                    while chunk := content.read(CHUNK_BYTES):
                        self._write(descriptor, poll, chunk)
        finally:
            os.close(descriptor)

    def _opened(self, fifo: Path) -> int | None:
        """The FIFO once somebody reads it; None when it is over before."""
        while not self._stopped.is_set():
            try:
                return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:  # ENXIO: nobody reads yet
                self._stopped.wait(POLL_S)
        return None

    def _write(self, descriptor: int, poll: select.poll, chunk: bytes) -> None:
        left = memoryview(chunk)
        while left:
            if self._stopped.is_set():
                raise BrokenPipeError
            if poll.poll(POLL_S * 1000):
                try:
                    left = left[os.write(descriptor, left) :]
                except BlockingIOError:  # another thread's reader took less than poll promised
                    continue
