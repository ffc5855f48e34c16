"""Channels in, artifacts out: what the service does between S3 and a host's disk, also for file:// URIs."""

import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import boto3


@dataclass(frozen=True, kw_only=True)
class ChannelSource:
    """Where a channel's files come from and how a host gets them."""

    name: str  # for messages
    uri: str
    input_mode: str
    distribution: str


def stage_channel(source: ChannelSource, channel: Path, *, host: int, hosts: int) -> None:
    """Lay the objects under the channel's URI out as `channel`, in their order; host `host` (0-based) of `hosts` gets its share.

    File mode on file:// makes hard links, or copies across file systems; FastFile makes symbolic links, so nothing is moved.
    FastFile on s3:// downloads first, which is the one thing here that the real service does better.
    Raises:
        FileNotFoundError: nothing is under the URI.
        ValueError: an object's name would lead out of the channel.
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError: S3 refuses or is not there.
    """
    whole, root = source.distribution == "FullyReplicated", local_path(source.uri)
    bucket, prefix = bucket_and_key(source.uri)
    if root is not None:
        if whole and source.input_mode == "FastFile" and root.is_dir():
            channel.symlink_to(root.resolve())
            return
        objects = _local_objects(root)
    else:
        objects = _s3_objects(bucket, prefix)
    if not objects:
        raise FileNotFoundError(f"no object under {source.uri}")
    channel.mkdir(parents=True, exist_ok=True)
    for name in sorted(objects) if whole else sorted(objects)[host::hosts]:
        target = channel / name
        if ".." in target.parts:
            raise ValueError(f"{objects[name]} would be laid outside the channel's folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        if root is None:
            boto3.client("s3").download_file(bucket, objects[name], str(target))
        elif source.input_mode == "FastFile":
            target.symlink_to(objects[name])
        else:
            _link_or_copy(Path(objects[name]), target)


def local_path(uri: str) -> Path | None:
    """The path of file:///..., None for any other URI."""
    return Path(unquote(urlsplit(uri).path)) if uri.startswith("file://") else None


def bucket_and_key(uri: str) -> tuple[str, str]:
    """Of s3://bucket/key, whose key may hold any character."""
    bucket, _, key = uri.partition("://")[2].partition("/")
    return bucket, key


def _local_objects(root: Path) -> dict[str, str]:
    """Name in the channel -> path, of a folder's files or of the one file."""
    if root.is_file():
        return {root.name: str(root.resolve())}
    return {str(path.relative_to(root)): str(path.resolve()) for path in root.rglob("*") if path.is_file()}


def _s3_objects(bucket: str, prefix: str) -> dict[str, str]:
    """Name in the channel -> key, of all objects whose key starts with the prefix."""
    pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", []) if not entry["Key"].endswith("/")]
    # A prefix that is a folder names what lies in it; one that ends within a name is cut back to its folder.
    folder = prefix if prefix.endswith("/") else prefix + "/"
    if not all(key.startswith(folder) for key in keys):
        folder = prefix[: prefix.rfind("/") + 1]
    return {key[len(folder) :]: key for key in keys}


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def upload_tar(folders: list[Path], uri: str) -> bool:
    """Put the files of several folders into one tar.gz at `uri`, where the first folder wins; none makes no artifact.

    Returns:
        Whether there was anything to put.
    """
    files: Mapping[str, Path] = {
        str(path.relative_to(folder)): path for folder in reversed(folders) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    if not files:
        return False
    with tempfile.TemporaryDirectory() as work:
        archive = Path(work) / "artifact.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:  # weights hardly shrink, time is what counts
            for name, path in sorted(files.items()):
                tar.add(path, arcname=name)
        _put(archive, uri)
    return True


def upload_files(folder: Path, uri: str) -> None:
    """Put every file below `folder` under `uri`, beside whatever is there already."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            # A name in a URI of this machine's files is quoted as as_uri() does it; an S3 key holds it as it is.
            name = str(path.relative_to(folder))
            _put(path, f"{uri.rstrip('/')}/{quote(name) if local_path(uri) else name}")


def _put(path: Path, uri: str) -> None:
    """One file as one object, which appears whole."""
    target = local_path(uri)
    if target is None:
        boto3.client("s3").upload_file(str(path), *bucket_and_key(uri))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    _link_or_copy(path, partial)
    os.replace(partial, target)
