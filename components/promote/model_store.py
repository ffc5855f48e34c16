"""The model store: numbered versions of a named model, one of them in force. A local folder, or s3://bucket/folder.

    <store>/<name>/versions/<n>/model/...  evaluation.json  version.json     n = 1, 2, 3, ..., never used twice, never changed
                   champion.json

A version appears as a whole, and comes into force by one compare-and-swap of champion.json. Whoever dies before that leaves the old
champion in force, and at most a version that never was.
"""

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.champion import (
    VERSION_JSON,
    Champion,
    Change,
    Standing,
    champion_file,
    check_files,
    open_standing,
    published_versions,
    read_standing,
    version_folder,
    write_champion,
)
from components.documents import parse_json, wrong_value
from components.errors import NotPromotable, StorageConflict
from components.model_files import MODEL_JSON, model_digest, read_model
from components.promote.gate import Rule
from components.promote.lineage import Lineage, who
from components.storage import FileToSend, Storage, check_free, open_storage

FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Version:
    """version.json: a model that passed the gate, and where it comes from. Whether it is or was in force, champion.json says."""

    format_version: int = FORMAT_VERSION
    name: str
    version: int
    model_digest: str
    evaluation_digest: str
    bytes: int
    auc: float
    log_loss: float
    champion_before: int | None
    lineage: Lineage
    rules: tuple[Rule, ...]
    created_at: str
    created_by: str


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def opened(storage: Storage, name: str, standing: Standing) -> Standing:
    """A standing that versions may be added under: in a store without this model it is written down that there is no champion yet.

    Raises:
        StorageConflict: somebody else did so, and may have promoted a model by now.
    """
    if standing.tag is not None:
        return standing
    open_standing(storage, name)
    return read_standing(storage, name)


def add_version(storage: Storage, version: Version, model: Path, evaluation: Path) -> Version:
    """Copy a model into the store under the next number; it appears whole or not at all.

    A version of the same model and evaluation that is there, and last, is taken as it is: an earlier try of the step left it.

    Args:
        version: what is known of it; its number is chosen here.
    Raises:
        InvalidRecords, FileNotFoundError: a file is not as model.json lists it, so the model changed since it was read.
    """
    numbers = [int(folder) for folder in storage.folders(f"{version.name}/versions") if folder.isdecimal()]
    number = max([*numbers, version.version, 1])
    if (last := max(numbers, default=0)) and storage.exists(f"{version_folder(version.name, last)}/{VERSION_JSON}"):
        found = read_version(storage, version.name, last)
        if (found.model_digest, found.evaluation_digest) == (version.model_digest, version.evaluation_digest):
            return found
        number = max(number, last + 1)
    # Every file is held against its digest as it is copied.
    listed = read_model(model, verify=False).files
    files = [FileToSend(path=model / file.path, name=f"model/{file.path}", sha256=file.sha256) for file in listed]
    files.append(FileToSend(path=model / MODEL_JSON, name=f"model/{MODEL_JSON}", sha256=version.model_digest))
    files.append(FileToSend(path=evaluation, name="evaluation.json", sha256=version.evaluation_digest))
    while True:
        numbered = replace(version, version=number)
        try:
            with _document(numbered) as mark:
                storage.publish([*files, mark], version_folder(version.name, number))
            return numbered
        except StorageConflict:
            number += 1  # somebody else's


def put_in_force(storage: Storage, standing: Standing, version: Version, change: Change) -> Champion:
    """Name a version champion, if the champion still is the one that this was decided by.

    Raises:
        StorageConflict: it is not; nothing was changed.
    """
    history = standing.champion.history if standing.champion else ()
    champion = Champion(
        name=version.name,
        version=version.version,
        model_digest=version.model_digest,
        data_digest=version.lineage.data_digest,
        auc=version.auc,
        log_loss=version.log_loss,
        promoted_at=change.at,
        run_id=change.run_id,
        history=(*history, change),
    )
    write_champion(storage.uri, champion, standing.tag)
    return champion


def roll_back(store: Path | str, name: str, to: int, reason: str) -> Champion:
    """Put a version in force that is in the store, whatever champion.json says, even where that is damaged or gone.

    Raises:
        NotPromotable: there is no such version, it is damaged, or it is in force.
        StorageConflict: the champion was changed meanwhile.
    """
    storage = open_storage(store)
    version = read_version(storage, name, to)
    check_files(storage, name, to, version.model_digest)
    found = storage.read(champion_file(name))
    try:
        standing = read_standing(storage, name)
        note = reason
    except NotPromotable as error:
        # What there was to be kept of it is lost. That is written down.
        standing, note = Standing(champion=None, tag=found.tag if found else None), f"{reason} ({error})"
    if standing.champion and standing.champion.version == to:
        raise NotPromotable(f"{storage.uri}: version {to} of {name} is in force already")
    change = Change(
        version=to,
        model_digest=version.model_digest,
        action="rolled back",
        at=now(),
        by=who(),
        run_id=version.lineage.run_id,
        reason=note,
    )
    return put_in_force(storage, standing, version, change)


def read_version(storage: Storage, name: str, number: int) -> Version:
    """version.json of one version.

    Raises:
        NotPromotable: there is no such version, or it is damaged.
    """
    file = f"{version_folder(name, number)}/{VERSION_JSON}"
    found, place = storage.read(file), f"{storage.uri}/{file}"
    if found is None:
        there = ", ".join(map(str, published_versions(storage, name))) or "none"
        raise NotPromotable(f"{storage.uri}: no version {number} of {name}; there are: {there}")
    try:
        document = parse_json(found.text)
        version = Version(
            **{
                **document,
                "lineage": Lineage(**document["lineage"]),
                "rules": tuple(Rule(**rule) for rule in document["rules"]),
            }
        )
    except (ValueError, TypeError, KeyError) as error:
        raise NotPromotable(f"{place}: not a version.json ({error}); restore it") from error
    if wrong := wrong_value(Version, version, "the document"):
        raise NotPromotable(f"{place}: {wrong}; restore it")
    return version


def read_versions(store: Path | str, name: str) -> tuple[Version, ...]:
    """All versions of a model, the oldest first."""
    storage = open_storage(store)
    return tuple(read_version(storage, name, number) for number in published_versions(storage, name))


def model_names(store: Path | str) -> list[str]:
    """Names of the models in a store."""
    storage = open_storage(store)
    return [name for name in storage.folders("") if storage.exists(champion_file(name)) or storage.folders(f"{name}/versions")]


def export_model(store: Path | str, name: str, number: int, out: Path) -> None:
    """Copy the model folder of a version to local disk, every file of it checked.

    Raises:
        InvalidConfig: `out` holds something.
        NotPromotable: there is no such version, or it is damaged.
    """
    storage = open_storage(store)
    version = read_version(storage, name, number)
    check_free(out)
    copy = out.with_name(f".{out.name}.unchecked")
    shutil.rmtree(copy, ignore_errors=True)
    try:
        storage.fetch(f"{version_folder(name, number)}/model", copy)
        read_model(copy)
        if model_digest(copy) != version.model_digest:
            raise NotPromotable(f"{storage.uri}: version {number} of {name} is not the model that it was made of; restore it")
        copy.rename(out)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


def differences(one: Version, other: Version) -> list[tuple[str, Any, Any]]:
    """What two versions differ in: place, and the value of each."""
    return [(key, *values) for key, *values in _differing("", asdict(one), asdict(other)) if key not in ("version", "rules")]


def _differing(place: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from _differing(f"{place}.{key}" if place else key, one.get(key), other.get(key))
    elif one != other:
        yield place, one, other


@contextmanager
def _document(version: Version) -> Iterator[FileToSend]:
    text = json.dumps(asdict(version), indent=2, allow_nan=False) + "\n"
    with TemporaryDirectory(prefix="ctrflow-") as work:
        path = Path(work) / VERSION_JSON
        path.write_text(text, encoding="utf-8")
        yield FileToSend(path=path, name=VERSION_JSON, sha256=hashlib.sha256(text.encode()).hexdigest())
