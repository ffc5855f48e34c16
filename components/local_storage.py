"""A local folder as storage: renames make what is written appear, and a lock of the kernel lets writers take turns."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from components.errors import InvalidConfig, InvalidRecords, StorageConflict
from components.storage import Document, FileToSend, StoredFile, check_free, is_marker, write_text_atomic
from components.transfer_log import TransferLog

_BLOCK_BYTES = 1 << 20
LOCK = ".lock"


class LocalStorage:
    """See components.storage.Storage."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def uri(self) -> str:
        return str(self._root)

    def exists(self, name: str) -> bool:
        return (self._root / name).is_file()

    def read(self, name: str) -> Document | None:
        path = self._root / name
        try:
            content = path.read_bytes()
            return Document(text=content.decode("utf-8"), tag=hashlib.sha256(content).hexdigest())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidConfig(f"{path}: cannot be read ({error.strerror}); change its permissions") from error
        except UnicodeDecodeError as error:
            raise InvalidRecords(f"{path}: not text in UTF-8 ({error.reason}); restore it") from error

    def open(self, name: str) -> BinaryIO:
        try:
            return (self._root / name).open("rb")
        except OSError as error:
            raise InvalidRecords(f"{self._root / name}: cannot be opened ({error.strerror}); restore it") from error

    def files(self, folder: str) -> list[StoredFile]:
        root = self._root / folder
        found = (path for path in root.rglob("*") if path.is_file() and not any(map(is_marker, path.relative_to(root).parts)))
        return [StoredFile(name=path.relative_to(root).as_posix(), size=path.stat().st_size) for path in sorted(found)]

    def folders(self, folder: str) -> list[str]:
        path = self._root / folder
        return sorted(each.name for each in path.iterdir() if each.is_dir() and not is_marker(each.name)) if path.is_dir() else []

    def swap(self, name: str, text: str, tag: str | None) -> None:
        path = self._root / name
        with self._locked(path.parent):
            found = self.read(name)
            if found and found.text == text:
                return
            if (found.tag if found else None) != tag:
                raise StorageConflict(f"{path}: was changed by somebody else meanwhile; try again")
            for leftover in path.parent.glob(f".{path.name}.*"):
                leftover.unlink()
            write_text_atomic(path, text)
            _sync(path.parent)

    def publish(self, files: Sequence[FileToSend], folder: str) -> None:
        target = self._root / folder
        with self._locked(target.parent):
            # Who holds the lock is the only one who writes here: whoever else began was killed.
            for leftover in target.parent.glob(f"{_TEMPORARY}*"):
                shutil.rmtree(leftover)
            if target.exists():
                raise StorageConflict(f"{target}: is there already")
            work = Path(tempfile.mkdtemp(dir=target.parent, prefix=_TEMPORARY))
            try:
                _copy(files, work)
                work.chmod(0o755)
                work.rename(target)
                _sync(target.parent)
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)
                raise

    def fetch(self, folder: str, out: Path) -> None:
        source = self._root / folder
        found = self.files(folder)
        if not found:
            raise InvalidRecords(f"{source}: nothing is there; name another folder")
        check_free(out)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as work:
            files = [FileToSend(path=source / each.name, name=each.name, sha256="") for each in found]
            _copy(files, content := Path(work) / "content")
            content.rename(out)

    @contextmanager
    def _locked(self, folder: Path) -> Iterator[None]:
        """Hold the right to change a folder. The kernel gives it back when the process ends, however it ends."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / LOCK).open("w")
        except OSError as error:
            raise InvalidConfig(f"{folder}: cannot be written ({error.strerror}); choose another store") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


# Begins what is not whole yet.
_TEMPORARY = ".publishing."


def _copy(files: Sequence[FileToSend], folder: Path) -> None:
    """Bytes that reached the disk, and are of their digest where one is given."""
    progress = TransferLog("copied", f"to {folder.parent}", sum(each.path.stat().st_size for each in files))
    for each in files:
        target = folder / each.name
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with each.path.open("rb") as source, target.open("wb") as copy:
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                copy.write(block)
                progress.add(len(block))
            copy.flush()
            os.fsync(copy.fileno())
        if each.sha256 and digest.hexdigest() != each.sha256:
            raise InvalidRecords(f"{each.path}: changed while it was copied; try again")


def _sync(folder: Path) -> None:
    """A rename outlasts a power cut only when the folder reached the disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
