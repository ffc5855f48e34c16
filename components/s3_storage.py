"""A prefix of a bucket as storage. S3 has no renames and no locks: it has writes on a condition.

    <folder>/.claim    written first, if there is none: who may write the folder, as a digest of what it will hold
            /...       files; a second try of the same files goes on from those that are there
            /<mark>    the last file, written if there is none: from now on the folder is there

Needs conditional writes (If-Match and If-None-Match of PutObject), which AWS has had since 2024 and MinIO has, too.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from botocore.exceptions import ClientError

from components.errors import InvalidRecords, StorageConflict
from components.s3 import answered, bucket_and_key, list_objects, s3_client
from components.s3_copies import fetch_objects, fetch_to, send_files
from components.storage import Document, FileToSend, S3Object, StoredFile, check_free, is_marker

CLAIM = ".claim"
_LOST = ("PreconditionFailed", "412", "ConditionalRequestConflict", "409")
_ABSENT = ("NoSuchKey", "404")


class S3Storage:
    """See components.storage.Storage."""

    def __init__(self, uri: str) -> None:
        self._bucket, key = bucket_and_key(uri)
        self._prefix = f"{key.rstrip('/')}/" if key.rstrip("/") else ""
        self._client = s3_client()

    @property
    def uri(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def exists(self, name: str) -> bool:
        with self._unless_absent(name):
            self._client.head_object(Bucket=self._bucket, Key=self._prefix + name)
            return True
        return False

    def read(self, name: str) -> Document | None:
        with self._unless_absent(name):
            found = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
            try:
                return Document(text=found["Body"].read().decode("utf-8"), tag=found["ETag"])
            except UnicodeDecodeError as error:
                raise InvalidRecords(f"{self._uri(name)}: not text in UTF-8 ({error.reason}); restore it") from error
        return None

    def open(self, name: str) -> BinaryIO:
        with answered(self._uri(name)):
            head = self._client.head_object(Bucket=self._bucket, Key=self._prefix + name)
        found = S3Object(bucket=self._bucket, key=self._prefix + name, size=head["ContentLength"], etag=head["ETag"])
        with tempfile.TemporaryDirectory(prefix="ctrflow-") as work:
            # Fetched and checked as a whole; the open file outlives its name.
            return fetch_objects([found], Path(work) / "file")[0].open("rb")

    def files(self, folder: str) -> list[StoredFile]:
        found = [(each.key.removeprefix(self._folder(folder)), each) for each in self._objects(folder)]
        return [
            StoredFile(name=name, size=each.size, sha256=self._kept_digest(each.key))
            for name, each in sorted(found, key=lambda pair: pair[0])
        ]

    def folders(self, folder: str) -> list[str]:
        prefix = self._folder(folder)
        with answered(self._uri(folder)):
            found = list_objects(self._client, self._bucket, prefix, delimiter="/")[1]
        names = (each.removeprefix(prefix).rstrip("/") for each in found)
        return sorted(name for name in names if not is_marker(name))

    def swap(self, name: str, text: str, tag: str | None) -> None:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        where = {"Bucket": self._bucket, "Key": self._prefix + name}
        with answered(self._uri(name)):
            try:
                self._client.put_object(**where, **condition, Body=text.encode(), ContentType="application/json")
            except ClientError as error:
                if error.response["Error"]["Code"] not in (*_LOST, *_ABSENT):
                    raise
                # The reply may have been lost, and boto3 have asked again; or an earlier try of ours got that far.
                found = self.read(name)
                if found is None or found.text != text:
                    raise StorageConflict(f"{self._uri(name)}: was changed by somebody else meanwhile; try again") from error

    def publish(self, files: Sequence[FileToSend], folder: str) -> None:
        *parts, mark = files
        what = hashlib.sha256(repr([(each.name, each.sha256) for each in parts]).encode()).hexdigest()
        if self.exists(f"{folder}/{mark.name}"):
            raise StorageConflict(f"{self._uri(folder)}: is there already")
        try:
            self.swap(f"{folder}/{CLAIM}", what, None)
        except StorageConflict as error:
            raise StorageConflict(f"{self._uri(folder)}: is being written, or was begun, by somebody else") from error
        send_files(parts, self._bucket, self._folder(folder))
        self.swap(f"{folder}/{mark.name}", mark.path.read_text(encoding="utf-8"), None)

    def fetch(self, folder: str, out: Path) -> None:
        objects = self._objects(folder)
        if not objects:
            raise InvalidRecords(f"{self._uri(folder)}: nothing is there; name another folder")
        check_free(out)
        work = out.with_name(f".{out.name}.partial")
        work.mkdir(exist_ok=True)
        copies = {work / hashlib.sha256(f"{each.uri} {each.etag}".encode()).hexdigest(): each for each in objects}
        fetch_to(copies)
        shutil.rmtree(content := work / "content", ignore_errors=True)
        for copy, each in copies.items():
            place = content / each.key.removeprefix(self._folder(folder))
            place.parent.mkdir(parents=True, exist_ok=True)
            copy.rename(place)
        content.rename(out)
        shutil.rmtree(work)

    def _folder(self, name: str) -> str:
        return f"{self._prefix}{name}/" if name else self._prefix

    def _uri(self, name: str) -> str:
        return f"s3://{self._bucket}/{self._prefix}{name}"

    def _objects(self, folder: str) -> list[S3Object]:
        prefix = self._folder(folder)
        with answered(self._uri(folder)):
            found = list_objects(self._client, self._bucket, prefix)[0]
        return [each for each in found if not any(map(is_marker, each.key.removeprefix(prefix).split("/")))]

    def _kept_digest(self, key: str) -> str:
        with answered(f"s3://{self._bucket}/{key}"):
            head = self._client.head_object(Bucket=self._bucket, Key=key)
        return str(head.get("Metadata", {}).get("sha256", ""))

    @contextmanager
    def _unless_absent(self, name: str) -> Iterator[None]:
        """The block, left without a word where there is no such object."""
        with answered(self._uri(name)):
            try:
                yield
            except ClientError as error:
                if error.response["Error"]["Code"] not in _ABSENT:
                    raise
