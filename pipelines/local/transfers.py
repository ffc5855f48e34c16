"""Channels in, artifacts out: what the service does between S3 and a host's disk, also for file:// URIs."""

import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

import boto3


@dataclass(frozen=True, kw_only=True)
class ChannelSource:
    """Where a channel's files come from and how a host gets them; `listed`: the URI is a manifest file that lists them."""

    name: str  # for messages
    uri: str
    input_mode: str
    distribution: str
    listed: bool = False


def channel_objects(source: ChannelSource, *, host: int, hosts: int) -> dict[str, str]:
    """Name in the channel -> path or s3:// URI, in their order, of what host `host` (0-based) of `hosts` gets.

    Raises:
        FileNotFoundError: nothing is under the URI.
        ValueError: a manifest file that is none.
        botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError: S3 refuses or is not there.
    """
    root = local_path(source.uri)
    if source.listed:
        objects = _listed_objects(source.uri)
    elif root is not None:
        objects = dict(sorted(_local_objects(root).items()))
    else:
        objects = dict(sorted(_s3_objects(*bucket_and_key(source.uri)).items()))
    if not objects:
        raise FileNotFoundError(f"no object under {source.uri}")
    names = list(objects) if source.distribution == "FullyReplicated" else list(objects)[host::hosts]
    return {name: objects[name] for name in names}


def stage_channel(source: ChannelSource, channel: Path, *, host: int, hosts: int) -> None:
    """Lay the objects of a channel out as `channel`.

    File mode on file:// makes hard links, or copies across file systems; FastFile makes symbolic links, so nothing is moved.
    FastFile on s3:// downloads first, which is the one thing here that the real service does better.
    Raises:
        ValueError: an object's name would lead out of the channel; and what `channel_objects` raises.
    """
    whole, root = source.distribution == "FullyReplicated" and not source.listed, local_path(source.uri)
    if whole and source.input_mode == "FastFile" and root is not None and root.is_dir():
        channel.symlink_to(root.resolve())
        return
    objects = channel_objects(source, host=host, hosts=hosts)
    channel.mkdir(parents=True, exist_ok=True)
    for name, place in objects.items():
        target = channel / name
        if ".." in target.parts:
            raise ValueError(f"{place} would be laid outside the channel's folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        if place.startswith("s3://"):
            boto3.client("s3").download_file(*bucket_and_key(place), str(target))
        elif source.input_mode == "FastFile":
            target.symlink_to(place)
        else:
            _link_or_copy(Path(place), target)


def open_object(place: str) -> BinaryIO:
    """The content of a path or an s3:// URI, as a stream."""
    if not place.startswith("s3://"):
        return Path(place).open("rb")
    bucket, key = bucket_and_key(place)
    stream: BinaryIO = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"]
    return stream


def restore_folder(uri: str, folder: Path) -> None:
    """Copy what lies under `uri`, which may be nothing, into `folder`. Copies, because programs write on into such files."""
    root = local_path(uri)
    if root is None:
        for name, place in _s3_objects(*bucket_and_key(uri)).items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            boto3.client("s3").download_file(*bucket_and_key(place), str(folder / name))
    elif root.is_dir():
        shutil.copytree(root, folder, dirs_exist_ok=True)


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
    """Name in the channel -> s3:// URI, of all objects whose key starts with the prefix."""
    pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    keys = [entry["Key"] for page in pages for entry in page.get("Contents", []) if not entry["Key"].endswith("/")]
    # A prefix that is a folder names what lies in it; one that ends within a name is cut back to its folder.
    folder = prefix if prefix.endswith("/") else prefix + "/"
    if not all(key.startswith(folder) for key in keys):
        folder = prefix[: prefix.rfind("/") + 1]
    return {key[len(folder) :]: f"s3://{bucket}/{key}" for key in keys}


def _listed_objects(uri: str) -> dict[str, str]:
    """Of a manifest file: a prefix, and what follows it in each object's URI. Source: API reference, S3DataSource."""
    root = local_path(uri)
    with open_object(uri if root is None else str(root)) as file:
        prefix, *names = json.loads(file.read())
    start = prefix["prefix"]
    folder = local_path(start)
    return {name: start + name if folder is None else str(folder / name) for name in names}


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
