"""Files that appear whole or not at all, and folders that are local or in S3 to those who need not know which.

    storage = open_storage("models")                # or "s3://bucket/models"
    storage.publish(files, "deepfm/versions/1")     # whole or not at all, and never over what is there
    storage.swap("deepfm/champion.json", text, tag) # only if nobody else did meanwhile

Local folders: local_storage.py. S3: s3_storage.py, imported only where it is asked for, because a training container has no boto3.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

from components.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class S3Object:
    """An object as it was listed: `etag` (with its quotes) is of these bytes and no later ones."""

    bucket: str
    key: str
    size: int
    etag: str

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A small file as it was read; `tag` is of this text and no other."""

    text: str
    tag: str


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of a storage as it was listed. `sha256` is what was kept of it when it was published, empty where nothing was."""

    name: str
    size: int
    sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class FileToSend:
    """A local file on its way into a storage; refused when its bytes are not of this digest."""

    path: Path
    name: str
    sha256: str


class Storage(Protocol):
    """A folder that is local or in S3. Names are paths below it, with forward slashes.

    Whatever asks raises InvalidConfig where the storage cannot be reached, read or written.
    """

    @property
    def uri(self) -> str:
        """What messages call it; without a slash at its end."""

    def exists(self, name: str) -> bool:
        """Whether there is a file of that very name."""

    def read(self, name: str) -> Document | None:
        """A small text; None where there is none."""

    def open(self, name: str) -> BinaryIO:
        """A file of any size, to be closed by the caller. Raises InvalidRecords where there is none."""

    def files(self, folder: str) -> list[StoredFile]:
        """All files below a folder by name, markers (`is_marker`) excepted; none where there is no folder."""

    def folders(self, folder: str) -> list[str]:
        """Names of the folders directly below one."""

    def swap(self, name: str, text: str, tag: str | None) -> None:
        """Write a small text if the one that is there has this tag; with None, if there is none. The same text counts as written:
        an earlier try may have got that far.

        Raises:
            StorageConflict: it has not; nothing was changed.
        """

    def publish(self, files: Sequence[FileToSend], folder: str) -> None:
        """Write a folder. Its last file is its mark: in S3, where folders cannot be renamed, the folder is there when that one is.

        Raises:
            StorageConflict: the folder is there, or somebody else writes it.
            InvalidRecords: a file is not of its digest, so it changed while it was read, or it arrived damaged.
        """

    def fetch(self, folder: str, out: Path) -> None:
        """Copy a folder to local disk, whole or not at all. What came whole from S3 before a copy broke off is not fetched again.

        Raises:
            InvalidRecords: there is nothing in it, or it changed or was damaged on the way.
        """


def open_storage(place: Path | str) -> Storage:
    """The storage of a local path or an s3:// URI. Nothing is asked or made yet."""
    if isinstance(place, str) and place.startswith("s3://"):
        from components.s3_storage import S3Storage

        return S3Storage(place)
    from components.local_storage import LocalStorage

    if isinstance(place, str) and "://" in place:
        raise InvalidConfig(f"{place}: a local folder or s3://bucket/folder is expected")
    return LocalStorage(Path(place))


def is_marker(name: str) -> bool:
    """Whether a file is another program's note, such as _SUCCESS or .part-0.crc, and not data."""
    return name.startswith((".", "_"))


@contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """A file to write to, under a temporary name in the same folder: renamed when the block ends well, gone when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_text_atomic(path: Path, text: str) -> None:
    """A reader sees the old file or the whole new one."""
    with atomic_text(path) as file:
        file.write(text)


def write_json_atomic(path: Path, document: object) -> None:
    """Strict JSON (NaN and infinities are refused with ValueError), written atomically."""
    write_text_atomic(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def check_free(out: Path) -> None:
    """Make the parent of a folder that is to appear; refuse one that holds something.

    Raises:
        InvalidConfig: it does.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise InvalidConfig(f"{out}: exists and is not an empty folder; choose another one or remove it")
    out.parent.mkdir(parents=True, exist_ok=True)


def check_replaceable(out: Path, *, marker: str) -> None:
    """Refuse to replace a folder that is not ours.

    Raises:
        InvalidConfig: `out` exists, holds something, and has no file `marker`.
    """
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / marker).is_file())):
        raise InvalidConfig(f"{out}: exists and is not an earlier output (no {marker} in it); choose another folder or remove it")


@contextmanager
def publish_folder(out: Path, *, marker: str) -> Iterator[Path]:
    """A temporary folder that becomes `out` when the block ends well, and vanishes when it does not.

    Args:
        out: the final name. It may exist if it is empty or holds `marker`, the file that says it is an earlier output of this kind.
    Raises:
        InvalidConfig: `out` holds something else, which is not ours to replace.
    """
    check_replaceable(out, marker=marker)
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
    old = work.with_name(work.name + ".old")
    try:
        yield work
        work.chmod(0o755)
        if out.exists():
            out.rename(old)
        try:
            work.rename(out)
        except BaseException:
            if old.exists():
                old.rename(out)
            raise
    finally:
        for leftover in (work, old):
            shutil.rmtree(leftover, ignore_errors=True)
