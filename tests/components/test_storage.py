"""Local folders and S3 are one storage: the same calls, the same answers, nothing half-written, and one winner of any race."""

import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.errors import InvalidConfig, InvalidRecords, StorageConflict
from components.s3 import without_secrets
from components.s3_copies import send_files
from components.storage import FileToSend, Storage, open_storage

ROOT = Path(__file__).parents[2]
BODY = np.random.default_rng(3).bytes(300_000)


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return open_storage(tmp_path / "store")
    request.getfixturevalue("s3")
    return open_storage("s3://clicks/store")


def files(folder: Path, **contents: bytes) -> list[FileToSend]:
    """Files in a folder; "a__b" is the name a/b, and "mark" comes last."""
    sent = []
    for key, content in contents.items():
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        sent.append(FileToSend(path=path, name=key.replace("__", "/"), sha256=hashlib.sha256(content).hexdigest()))
    return sent


def test_a_published_folder_is_listed_read_opened_and_fetched(storage: Storage, tmp_path: Path) -> None:
    storage.publish(files(tmp_path / "in", model__big=BODY, model__deep__small=b"", mark=b"done"), "m/versions/1")
    assert storage.folders("m/versions") == ["1"]
    assert [(each.name, each.size) for each in storage.files("m/versions/1")] == [
        ("mark", 4),
        ("model/big", 300_000),
        ("model/deep/small", 0),
    ]
    assert storage.exists("m/versions/1/mark")
    assert not storage.exists("m/versions/1/mar")
    assert not storage.exists("m/versions")
    found = storage.read("m/versions/1/mark")
    assert found is not None
    assert found.text == "done"
    with storage.open("m/versions/1/model/big") as file:
        assert file.read() == BODY
    storage.fetch("m/versions/1/model", tmp_path / "out")
    assert (tmp_path / "out/big").read_bytes() == BODY
    assert (tmp_path / "out/deep/small").read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_what_is_not_there(storage: Storage, tmp_path: Path) -> None:
    assert storage.read("absent.json") is None
    assert storage.files("absent") == []
    assert storage.folders("absent") == []
    with pytest.raises(InvalidRecords, match="absent"):
        storage.open("absent")
    with pytest.raises(InvalidRecords, match="nothing is there"):
        storage.fetch("absent", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_published_folder_is_never_written_again(storage: Storage, tmp_path: Path) -> None:
    storage.publish(files(tmp_path / "in", a=b"first", mark=b"1"), "v/1")
    for content in (b"other", b"first"):
        with pytest.raises(StorageConflict, match=r"v/1: is there already"):
            storage.publish(files(tmp_path / "again", a=content, mark=b"2"), "v/1")
    assert [each.size for each in storage.files("v/1")] == [5, 1]
    found = storage.read("v/1/mark")
    assert found is not None
    assert found.text == "1"


def test_a_file_that_changed_is_not_published(storage: Storage, tmp_path: Path) -> None:
    sent = files(tmp_path / "in", a=b"first", mark=b"1")
    sent[0].path.write_bytes(b"later")
    with pytest.raises(InvalidRecords, match="changed while it was copied"):
        storage.publish(sent, "v/1")
    assert not storage.exists("v/1/mark")
    assert storage.files("v/1") == []


def test_swap_writes_only_over_what_was_read(storage: Storage) -> None:
    storage.swap("m/champion.json", "one", None)
    with pytest.raises(StorageConflict, match="changed by somebody else"):
        storage.swap("m/champion.json", "two", None)
    one = storage.read("m/champion.json")
    assert one is not None
    storage.swap("m/champion.json", "two", one.tag)
    with pytest.raises(StorageConflict, match="changed by somebody else"):
        storage.swap("m/champion.json", "three", one.tag)
    with pytest.raises(StorageConflict, match="changed by somebody else"):
        storage.swap("m/absent.json", "three", one.tag)
    two = storage.read("m/champion.json")
    assert two is not None
    assert two.text == "two"


def test_of_many_who_swap_at_once_one_wins(storage: Storage) -> None:
    storage.swap("c.json", "start", None)
    start = storage.read("c.json")
    assert start is not None

    def attempt(number: int) -> bool:
        try:
            storage.swap("c.json", f"by {number}", start.tag)
        except StorageConflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(attempt, range(8)))
    assert sum(outcomes) == 1
    found = storage.read("c.json")
    assert found is not None
    assert found.text == f"by {outcomes.index(True)}"


def test_fetch_leaves_alone_what_is_in_the_way(storage: Storage, tmp_path: Path) -> None:
    storage.publish(files(tmp_path / "in", a=b"first", mark=b"1"), "v/1")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(InvalidConfig, match="out: exists and is not an empty folder"):
        storage.fetch("v/1", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


# Ends itself as kill -9 would, before one of the calls that change something.
KILLED = """
import os, signal, sys
from pathlib import Path
from components import local_storage, s3_storage, storage
from components.storage import FileToSend, open_storage
place, name, folder = sys.argv[1:]
module, function = name.split(".")
owner = {"local": local_storage, "path": Path, "os": os, "s3": s3_storage, "storage": s3_storage.S3Storage}[module]
def die(*arguments, **settings):
    os.kill(os.getpid(), signal.SIGKILL)
if name == "storage.swap":  # the second one: the mark
    swap = owner.swap
    owner.swap = lambda self, name, *rest: die() if name.endswith("mark") else swap(self, name, *rest)
else:
    setattr(owner, function, die)
files = []
import hashlib
for path in sorted(Path(folder).iterdir()):
    files.append(FileToSend(path=path, name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
open_storage(place).publish(files, "v/1")
"""


@pytest.mark.parametrize(
    ("kind", "point"), [("local", "local._copy"), ("local", "path.rename"), ("s3", "s3.send_files"), ("s3", "storage.swap")]
)
def test_who_is_killed_while_publishing_leaves_nothing_visible_and_the_next_try_succeeds(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, point: str
) -> None:
    place = "s3://clicks/store" if kind == "s3" else str(tmp_path / "store")
    if kind == "s3":
        request.getfixturevalue("s3")
    sent = files(tmp_path / "in", a=BODY, mark=b"1")
    ended = subprocess.run([sys.executable, "-c", KILLED, place, point, str(tmp_path / "in")], cwd=ROOT, check=False)
    assert ended.returncode == -9
    storage = open_storage(place)
    assert not storage.exists("v/1/mark")
    storage.publish(sent, "v/1")
    assert [each.name for each in storage.files("v/1")] == ["a", "mark"]
    if kind == "local":
        assert sorted(path.name for path in (tmp_path / "store/v").iterdir()) == [".lock", "1"]


def test_a_large_file_goes_in_parts_and_is_not_sent_twice(tmp_path: Path, s3: Any) -> None:
    body = np.random.default_rng(4).bytes((5 << 20) + 12_345)
    sent = files(tmp_path / "in", a=body, b=b"small")
    send_files(sent, "clicks", "to/", part_bytes=5 << 20)
    first = s3.head_object(Bucket="clicks", Key="to/a")
    assert first["ETag"].strip('"').endswith("-2")
    assert first["Metadata"] == {"sha256": hashlib.sha256(body).hexdigest()}
    assert s3.get_object(Bucket="clicks", Key="to/a")["Body"].read() == body
    # S3 gives another time to what is written again.
    s3.copy_object(Bucket="clicks", Key="kept", CopySource="clicks/to/b")
    s3.delete_object(Bucket="clicks", Key="to/b")
    send_files(sent, "clicks", "to/", part_bytes=5 << 20)
    assert s3.head_object(Bucket="clicks", Key="to/a")["LastModified"] == first["LastModified"]
    assert s3.get_object(Bucket="clicks", Key="to/b")["Body"].read() == b"small"


def test_what_another_claims_is_not_written(tmp_path: Path, s3: Any) -> None:
    s3.put_object(Bucket="clicks", Key="store/v/1/.claim", Body=b"another")
    with pytest.raises(StorageConflict, match="is being written, or was begun, by somebody else"):
        open_storage("s3://clicks/store").publish(files(tmp_path / "in", a=b"1", mark=b"1"), "v/1")
    assert [each["Key"] for each in s3.list_objects_v2(Bucket="clicks")["Contents"]] == ["store/v/1/.claim"]


def test_a_broken_fetch_goes_on_from_what_is_whole(tmp_path: Path, s3: Any) -> None:
    storage = open_storage("s3://clicks/store")
    storage.publish(files(tmp_path / "in", a=BODY, b=b"second", mark=b"1"), "v/1")
    s3.delete_object(Bucket="clicks", Key="store/v/1/b")
    listed = storage.files("v/1")
    assert [each.name for each in listed] == ["a", "mark"]
    # What a killed fetch leaves: whole copies under the names that they have before they are all there.
    objects = storage._objects("v/1")  # type: ignore[attr-defined]
    name = hashlib.sha256(f"{objects[0].uri} {objects[0].etag}".encode()).hexdigest()
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / name).write_bytes(BODY)
    before = os.stat(tmp_path / ".out.partial" / name).st_ino
    storage.fetch("v/1", tmp_path / "out")
    assert os.stat(tmp_path / "out/a").st_ino == before
    assert not (tmp_path / ".out.partial").exists()
    # One that is not what S3 holds is noticed.
    (tmp_path / ".more.partial").mkdir()
    (tmp_path / ".more.partial" / name).write_bytes(BODY[::-1])
    with pytest.raises(InvalidRecords, match="arrived damaged"):
        storage.fetch("v/1", tmp_path / "more")
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("s3://", "s3://bucket/key is expected"),
        ("gs://bucket/models", "a local folder or s3://bucket/folder is expected"),
    ],
)
def test_a_place_that_is_neither_is_refused(s3: Any, place: str, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        open_storage(place)


def test_a_bucket_that_is_not_there_is_said(s3: Any) -> None:
    storage = open_storage("s3://clacks/models")
    for action in (lambda: storage.read("a"), lambda: storage.swap("a", "text", None), lambda: storage.folders("")):
        with pytest.raises(InvalidRecords, match="no such bucket; correct its name"):
            action()


@pytest.mark.parametrize(
    "text",
    [
        'Could not connect to the endpoint URL: "http://user:secret@s3.example:9000/clicks"',
        "https://clicks.s3.amazonaws.com/a?X-Amz-Credential=secret%2F2026&X-Amz-Signature=secret&X-Amz-Security-Token=secret",
    ],
)
def test_what_is_said_of_s3_gives_no_secret_away(text: str) -> None:
    assert "secret" not in without_secrets(text)
    assert "***" in without_secrets(text)
