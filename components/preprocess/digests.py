"""SHA-256 of input files, taken by a thread while the workers parse, so that nobody waits for it afterwards."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import TracebackType

_PIECE_BYTES = 1 << 20


def file_digest(path: Path) -> str:
    """The digest of one file, taken here and now."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Digests:
    """Digests of `files`; when the block ends early the thread ends, too, wherever it is."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self._stopped = Event()

    def __enter__(self) -> "Digests":
        self._thread = ThreadPoolExecutor(1)
        self._digests: dict[Path, Future[str]] = {path: self._thread.submit(self._digest, path) for path in self._files}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.shutdown(cancel_futures=True)

    def of(self, path: Path) -> str:
        """The digest of a file, in hexadecimal digits.

        Raises:
            OSError: the file cannot be opened or read.
        """
        return self._digests[path].result()

    def _digest(self, path: Path) -> str:
        digest, space = hashlib.sha256(), bytearray(_PIECE_BYTES)
        with path.open("rb", buffering=0) as file:
            # Hashing and reading leave the interpreter to the main thread.
            while (size := file.readinto(space)) and not self._stopped.is_set():
                digest.update(memoryview(space)[:size])
        return digest.hexdigest()
