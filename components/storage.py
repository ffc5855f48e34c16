"""Files that appear whole or not at all, and what an object in S3 is to who reads files (s3.py asks S3)."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

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
