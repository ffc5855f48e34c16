"""What a training job leaves behind: model.tar.gz and output.tar.gz under <S3OutputPath>/<job>/output/."""

import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from components.errors import InvalidConfig, InvalidRecords
from components.s3 import answered, bucket_and_key, s3_client
from components.s3_copies import fetch_to
from components.storage import S3Object


def fetch_artifact(uri: str, folder: Path) -> Path:
    """Download a tar.gz (file:///... or s3://...) and unpack it as `folder`, which appears whole or not at all.

    Args:
        folder: the final name; missing or an empty folder.
    Returns:
        `folder`.
    Raises:
        InvalidConfig: the URI is of neither kind, or `folder` holds something.
        InvalidRecords: nothing is there, it cannot be read, or it reaches outside the folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidConfig(f"{folder}: exists and is not empty; choose another folder or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as work:
        archive, content = _local_copy(uri, Path(work)), Path(work) / "content"
        content.mkdir()
        try:
            with tarfile.open(archive, "r:gz") as tar:
                tar.extractall(content, members=_plain_members(tar))
        except (tarfile.TarError, OSError, EOFError) as error:
            if isinstance(error, OSError) and error.errno:
                raise  # such as a full disk: nothing is wrong with the archive
            raise InvalidRecords(f"{uri}: not a sound tar.gz ({error}); run the training job again") from error
        os.replace(content, folder)
    return folder


def _plain_members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Files and folders below the destination, this process's own. tarfile's filter is of Python 3.11.4, and Debian 12 has 3.11.2.

    Raises:
        TarError: a member is something else, or would lie elsewhere.
    """
    for member in tar:
        member.name = member.name.lstrip("/")
        if ".." in PurePosixPath(member.name).parts:
            raise tarfile.TarError(f"{member.name!r} would be outside the destination")
        if not (member.isfile() or member.isdir()):
            raise tarfile.TarError(f"{member.name!r} is neither a file nor a folder")
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        member.uid, member.gid, member.uname, member.gname = os.getuid(), os.getgid(), "", ""
        yield member


def _local_copy(uri: str, work: Path) -> Path:
    parts = urlsplit(uri)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        if not path.is_file():
            raise InvalidRecords(f"{uri}: no such artifact; the training job wrote none")
        return path
    if parts.scheme != "s3":
        raise InvalidConfig(f"{uri}: s3://bucket/key or file:///path is expected")
    path = work / "artifact.tar.gz"
    bucket, key = bucket_and_key(uri)
    with answered(uri):
        head = s3_client().head_object(Bucket=bucket, Key=key)
    fetch_to({path: S3Object(bucket=bucket, key=key, size=head["ContentLength"], etag=head["ETag"])})
    return path
