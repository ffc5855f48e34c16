"""Copies of S3 objects on local disk and of local files in S3: several at once, each in parts.

What is fetched are the bytes that were listed or none: every part is asked for by the ETag that was listed, so that an object that
is replaced meanwhile is refused and never mixed. When a copy is whole, either way, it is held against the checksum that S3 keeps of
the object: SHA-256, SHA-1, CRC-32C or CRC-32 where the whole object has one, else its ETag where that is an MD5. What has another
kind only (CRC-64/NVME, or one of parts) is held against its size.
"""

import base64
import hashlib
import logging
import re
import shutil
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import google_crc32c
from boto3.s3.transfer import TransferConfig, create_transfer_manager
from botocore.exceptions import ClientError
from s3transfer.exceptions import RetriesExceededError, S3DownloadFailedError
from s3transfer.subscribers import BaseSubscriber

from components.errors import InvalidConfig, InvalidRecords
from components.s3 import REPLACED, answered, s3_client
from components.storage import FileToSend, S3Object
from components.transfer_log import TransferLog, size

log = logging.getLogger(__name__)

PART_BYTES = 16 << 20
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
    folder.mkdir()
    paths = [folder / f"{index:05d}" for index in range(len(objects))]
    fetch_to(dict(zip(paths, objects, strict=True)), part_bytes)
    return paths


def fetch_to(copies: Mapping[Path, S3Object], part_bytes: int = PART_BYTES) -> None:
    """Objects under these names, whose folder exists. A name that is there is a whole copy: one gets its name when it is whole.

    Raises: as fetch_objects.
    """
    client = s3_client()
    missing = {path: each for path, each in copies.items() if not path.exists()}
    total = sum(each.size for each in missing.values())
    if missing:
        _check_room(list(missing.values()), total, shutil.disk_usage(next(iter(missing)).parent).free)
    progress = _Progress("fetched", "from S3", total)
    with create_transfer_manager(client, _config(part_bytes, threshold=1)) as manager:
        # All in parts, because only a part is asked for by its ETag.
        started = {
            path: manager.download(each.bucket, each.key, str(path), subscribers=[_AsListed(each), progress])
            for path, each in missing.items()
        }
        for path, future in started.items():
            _wait(copies[path].uri, future.result)
    with ThreadPoolExecutor(_CHECKED_AT_ONCE) as pool:
        checked = sum(pool.map(lambda path: _check(client, copies[path], path), copies))
    log.info(
        "fetched %d objects, %s, from S3 in %.1f s; %d of them have a checksum, and agree with it",
        len(missing), size(total), progress.seconds, checked,
    )  # fmt: skip


def send_files(files: Sequence[FileToSend], bucket: str, prefix: str, part_bytes: int = PART_BYTES) -> None:
    """Objects of the names of files below a prefix (empty, or with "/" at its end); what is there already is not sent again.

    S3 refuses a body that is not of the CRC-32 of the file, and keeps the SHA-256 with the object as metadata `sha256`.

    Raises:
        InvalidConfig: S3 cannot be asked, or may not be written.
        InvalidRecords: a file changed while it was read, or what S3 holds is not what was sent.
    """
    client = s3_client()
    with ThreadPoolExecutor(_CHECKED_AT_ONCE) as pool:
        crcs = list(pool.map(_crc_of_unchanged, files))
        held = list(pool.map(lambda each: _is_held(client, each, bucket, prefix + each.name), files))
    missing = [(each, crc) for each, crc, is_held in zip(files, crcs, held, strict=True) if not is_held]
    total = sum(each.path.stat().st_size for each, _ in missing)
    progress = _Progress("sent", f"to s3://{bucket}/{prefix}", total)
    with create_transfer_manager(client, _config(part_bytes, threshold=part_bytes)) as manager:
        started = [
            manager.upload(
                str(each.path),
                bucket,
                prefix + each.name,
                extra_args={"ChecksumCRC32": base64.b64encode(crc).decode(), "Metadata": {"sha256": each.sha256}},
                subscribers=[progress],
            )
            for each, crc in missing
        ]
        for (each, _), future in zip(missing, started, strict=True):
            _wait(f"s3://{bucket}/{prefix}{each.name}", future.result)
    for each, _ in missing:
        uri = f"s3://{bucket}/{prefix}{each.name}"
        with answered(uri):
            head = client.head_object(Bucket=bucket, Key=prefix + each.name)
        found = S3Object(bucket=bucket, key=prefix + each.name, size=head["ContentLength"], etag=head["ETag"])
        _check(client, found, each.path)
    log.info("sent %d files, %s, to s3://%s/%s in %.1f s", len(missing), size(total), bucket, prefix, progress.seconds)


def _config(part_bytes: int, threshold: int) -> Any:
    return TransferConfig(
        multipart_threshold=threshold,
        multipart_chunksize=part_bytes,
        max_io_queue=_WAITING_BLOCKS,
        # Another client, which boto3 takes where it is installed, knows none of these settings.
        preferred_transfer_client="classic",
    )


def _crc_of_unchanged(each: FileToSend) -> bytes:
    if (found := _digest(each.path, "SHA256").hex()) != each.sha256:
        raise InvalidRecords(f"{each.path}: changed while it was copied ({found[:12]}, expected {each.sha256[:12]}); try again")
    return _digest(each.path, "CRC32")


def _is_held(client: Any, each: FileToSend, bucket: str, key: str) -> bool:
    """Whether an earlier try sent this very file. An object is there whole or not at all."""
    try:
        head = client.head_object(Bucket=bucket, Key=key)
    except ClientError as error:
        if error.response["Error"]["Code"] == "404":
            return False
        with answered(f"s3://{bucket}/{key}"):
            raise
    return bool(head["ContentLength"] == each.path.stat().st_size and head.get("Metadata", {}).get("sha256") == each.sha256)


def _check_room(objects: Sequence[S3Object], needed: int, free: int) -> None:
    if needed > free:
        names = objects[0].uri if len(objects) == 1 else f"{objects[0].uri} and {len(objects) - 1} more objects"
        raise InvalidConfig(
            f"{names}: {size(needed)} are to be fetched, {size(free)} are free on the disk of the output; choose a larger one"
        )


def _wait(uri: str, result: Callable[[], None]) -> None:
    try:
        with answered(uri):
            result()
    except S3DownloadFailedError as error:
        # What s3transfer makes of 412 for one part.
        raise InvalidRecords(f"{uri}: {REPLACED}") from error
    except RetriesExceededError as error:
        raise InvalidRecords(f"{uri}: the connection broke again and again ({error.last_exception}); try again") from error
    except OSError as error:
        raise InvalidConfig(f"{uri}: the local copy cannot be read or written ({error.strerror or error})") from error


class _AsListed(BaseSubscriber):  # type: ignore[misc]
    """Spares the question for size and ETag, and above all takes no other answer than that of the listing."""

    def __init__(self, of: S3Object) -> None:
        self._object = of

    def on_queued(self, future: Any, **_: Any) -> None:
        future.meta.provide_transfer_size(self._object.size)
        future.meta.provide_object_etag(self._object.etag)


class _Progress(BaseSubscriber):  # type: ignore[misc]
    """What s3transfer tells of each transfer, as log lines of all of them."""

    def __init__(self, verb: str, where: str, total: int) -> None:
        self._log = TransferLog(verb, where, total)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._log.start

    def on_progress(self, future: Any, bytes_transferred: int, **_: Any) -> None:
        self._log.add(bytes_transferred)


def _check(client: Any, each: S3Object, path: Path) -> bool:
    """Whether there is a checksum, with which the copy agrees.

    Raises:
        InvalidRecords: it does not.
    """
    with answered(each.uri):
        head = client.head_object(Bucket=each.bucket, Key=each.key, IfMatch=each.etag, ChecksumMode="ENABLED")
    if (arrived := path.stat().st_size) != each.size:
        raise InvalidRecords(f"{each.uri}: {arrived} bytes arrived of {each.size}; run again")
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
