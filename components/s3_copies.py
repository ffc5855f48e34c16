"""Copies of S3 objects on local disk: several at once and each in parts, the bytes that were listed or none.

Every part is asked for by the ETag that was listed, so that an object that is replaced meanwhile is refused and never mixed. When a
copy is whole it is held against the checksum that S3 keeps of the object: SHA-256, SHA-1, CRC-32C or CRC-32 where the whole object
has one, else its ETag where that is an MD5. What has another kind only (CRC-64/NVME, or one of parts) is held against its size.
"""

import base64
import hashlib
import logging
import re
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google_crc32c
from boto3.s3.transfer import TransferConfig, create_transfer_manager
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError
from s3transfer.subscribers import BaseSubscriber

from components.errors import InvalidConfig, InvalidRecords
from components.s3 import REPLACED, answered, s3_client
from components.storage import S3Object

log = logging.getLogger(__name__)

PART_BYTES = 16 << 20
INTERVAL_S = 10.0
# Blocks of 256 KiB that wait for the disk: 16 MiB. Boto3's own 1000 would be a quarter of a gigabyte.
_WAITING_BLOCKS = 64
_CHECKED_AT_ONCE = 8
_BLOCK_BYTES = 1 << 20
# In the order of what is believed first.
_ALGORITHMS = ("SHA256", "SHA1", "CRC32C", "CRC32")


def fetch_objects(objects: Sequence[S3Object], folder: Path, part_bytes: int = PART_BYTES) -> list[Path]:
    """Copies named by their place in `objects`, in `folder`, which is made.

    Raises:
        InvalidConfig: they do not fit on the disk, or S3 cannot be asked.
        InvalidRecords: an object was replaced or removed since it was listed, or arrived damaged.
    """
    client, total = s3_client(), sum(each.size for each in objects)
    folder.mkdir()
    _check_room(objects, total, shutil.disk_usage(folder).free)
    paths = [folder / f"{index:05d}" for index in range(len(objects))]
    progress = _Progress(total)
    config = TransferConfig(
        # All in parts, because only a part is asked for by its ETag.
        multipart_threshold=1,
        multipart_chunksize=part_bytes,
        max_io_queue=_WAITING_BLOCKS,
        # Another client, which boto3 takes where it is installed, knows none of these settings.
        preferred_transfer_client="classic",
    )
    with create_transfer_manager(client, config) as manager:
        started = [
            manager.download(each.bucket, each.key, str(path), subscribers=[_AsListed(each), progress])
            for each, path in zip(objects, paths, strict=True)
        ]
        for each, future in zip(objects, started, strict=True):
            _wait(each, future.result)
    with ThreadPoolExecutor(_CHECKED_AT_ONCE) as pool:
        checked = sum(pool.map(lambda each, path: _check(client, each, path), objects, paths))
    log.info(
        "fetched %d objects, %s, from S3 in %.1f s; %d of them have a checksum, and agree with it",
        len(objects), _size(total), time.monotonic() - progress.start, checked,
    )  # fmt: skip
    return paths


def _check_room(objects: Sequence[S3Object], needed: int, free: int) -> None:
    if needed > free:
        names = objects[0].uri if len(objects) == 1 else f"{objects[0].uri} and {len(objects) - 1} more objects"
        raise InvalidConfig(
            f"{names}: {_size(needed)} are to be fetched, {_size(free)} are free on the disk of the output; choose a larger one"
        )


def _wait(each: S3Object, result: Callable[[], None]) -> None:
    try:
        with answered(each.uri):
            result()
    except S3DownloadFailedError as error:
        # What s3transfer makes of 412 for one part.
        raise InvalidRecords(f"{each.uri}: {REPLACED}") from error
    except RetriesExceededError as error:
        raise InvalidRecords(f"{each.uri}: the connection broke again and again ({error.last_exception}); try again") from error
    except OSError as error:
        raise InvalidConfig(f"{each.uri}: cannot be stored on the disk of the output ({error.strerror or error})") from error


class _AsListed(BaseSubscriber):  # type: ignore[misc]
    """Spares the question for size and ETag, and above all takes no other answer than that of the listing."""

    def __init__(self, of: S3Object) -> None:
        self._object = of

    def on_queued(self, future: Any, **_: Any) -> None:
        future.meta.provide_transfer_size(self._object.size)
        future.meta.provide_object_etag(self._object.etag)


class _Progress(BaseSubscriber):  # type: ignore[misc]
    """A log line every INTERVAL_S, from whichever thread comes first."""

    def __init__(self, total: int) -> None:
        self._total, self._fetched, self._lock = total, 0, threading.Lock()
        self.start = self._said = time.monotonic()

    def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
        # Less than nothing where a part is begun again.
        with self._lock:
            self._fetched += bytes_transferred
            now = time.monotonic()
            if now - self._said < INTERVAL_S:
                return
            self._said = now
            log.info("%s", progress_line(self._fetched, self._total, now - self.start))


def progress_line(fetched: int, total: int, seconds: float) -> str:
    """How far it is, how fast it is, and how long the rest takes at that speed."""
    left = seconds * (total - fetched) / max(fetched, 1)
    return f"fetched {_size(fetched)} of {_size(total)} from S3, {fetched / seconds / 1e6:,.0f} MB/s, about {left:,.0f} s left"


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def _check(client: Any, each: S3Object, path: Path) -> bool:
    """Whether there is a checksum, with which the copy agrees.

    Raises:
        InvalidRecords: it does not.
    """
    with answered(each.uri):
        head = client.head_object(Bucket=each.bucket, Key=each.key, IfMatch=each.etag, ChecksumMode="ENABLED")
    if (size := path.stat().st_size) != each.size:
        raise InvalidRecords(f"{each.uri}: {size} bytes arrived of {each.size}; run again")
    algorithm, expected = _expected(head, each.etag)
    if not algorithm:
        return False
    if (found := _digest(path, algorithm)) != expected:
        raise InvalidRecords(f"{each.uri}: arrived damaged ({algorithm} {found.hex()}, S3 says {expected.hex()}); run again")
    return True


def _expected(head: dict[str, Any], etag: str) -> tuple[str, bytes]:
    """The algorithm, empty where there is none that is computed here, and the digest of the whole object."""
    if head.get("ChecksumType", "FULL_OBJECT") == "FULL_OBJECT":
        for algorithm in _ALGORITHMS:
            # One of the digests of parts ends with their number.
            if (text := head.get(f"Checksum{algorithm}", "-")) and "-" not in text:
                return algorithm, base64.b64decode(text)
    # Of an object that S3 encrypts by a key of KMS or the customer's, or keeps in one zone, it is something else.
    is_md5 = head.get("ServerSideEncryption", "AES256") == "AES256" and head.get("StorageClass") != "EXPRESS_ONEZONE"
    if is_md5 and "SSECustomerAlgorithm" not in head and re.fullmatch('"[0-9a-f]{32}"', etag):
        return "MD5", bytes.fromhex(etag.strip('"'))
    return "", b""


def _digest(path: Path, algorithm: str) -> bytes:
    with path.open("rb") as file:
        if not algorithm.startswith("CRC"):
            # Not for security, so that a machine that allows no MD5 for that computes it, too.
            return hashlib.file_digest(file, lambda: hashlib.new(algorithm.lower(), usedforsecurity=False)).digest()
        update = google_crc32c.extend if algorithm == "CRC32C" else lambda crc, block: zlib.crc32(block, crc)
        crc = 0
        while block := file.read(_BLOCK_BYTES):
            crc = update(crc, block)
    return crc.to_bytes(4, "big")
