"""The champion: the version of a model that the store says is in force. The store is a local folder or s3://bucket/folder.

<store>/<name>/champion.json          the champion and all changes so far; changed by compare-and-swap alone
               versions/<n>/model/...
                            version.json   written last: without it there is no such version

A store where nothing was promoted yet has a champion.json that says so, written before the first version. So versions without a
champion.json mean that it was lost, and never that the next model may be promoted unopposed.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from components.documents import parse_json, wrong_value
from components.errors import InvalidRecords, NotPromotable
from components.model_files import MODEL_JSON, model_card
from components.plain_names import check_plain
from components.storage import Storage, open_storage

FORMAT_VERSION = 1
CHAMPION_JSON = "champion.json"
VERSION_JSON = "version.json"
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Change:
    """A version that came into force: when, by whom (user@host) and why."""

    version: int
    model_digest: str
    action: Literal["promoted", "rolled back"]
    at: str
    by: str
    run_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Champion:
    """champion.json. AUC and log loss (nats a row) were measured when it was promoted, on the data of that day.

    `history` has every change so far, the latest last.
    """

    format_version: int = FORMAT_VERSION
    name: str
    version: int
    model_digest: str
    data_digest: str
    auc: float
    log_loss: float
    promoted_at: str
    run_id: str
    history: tuple[Change, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What champion.json says, and the tag that a change of it must name; None where there is no such file yet."""

    champion: Champion | None
    tag: str | None


def check_name(name: str) -> None:
    """A model's name becomes a folder of the store.

    Raises:
        InvalidConfig: it could leave the store, or is no plain name.
    """
    check_plain("name", name)


def champion_file(name: str) -> str:
    check_name(name)
    return f"{name}/{CHAMPION_JSON}"


def version_folder(name: str, version: int) -> str:
    """Folder of one version within the store; its model lies in `model` below it."""
    check_name(name)
    return f"{name}/versions/{version}"


def champion_model(store: Path, champion: Champion) -> Path:
    """The champion's model folder in a local store."""
    return store / version_folder(champion.name, champion.version) / "model"


def champion_copy(store: Path | str, champion: Champion, scratch: Path) -> Path:
    """The champion's model folder as local files: itself in a local store, else fetched into `scratch`.

    Raises:
        NotPromotable: the store has no such version.
    """
    storage = open_storage(store)
    if not isinstance(store, str) or not store.startswith("s3://"):
        return champion_model(Path(store), champion)
    out = scratch / f"{champion.name}-{champion.version}"
    try:
        storage.fetch(f"{version_folder(champion.name, champion.version)}/model", out)
    except InvalidRecords as error:
        raise NotPromotable(f"{error}; restore the version, or put another one in force (ctrflow models rollback)") from error
    return out


def champion_file_text(store: Path | str, champion: Champion, name: str) -> str | None:
    """A text file of the champion's model folder; None where it has none of this name."""
    found = open_storage(store).read(f"{version_folder(champion.name, champion.version)}/model/{name}")
    return found.text if found else None


def read_champion(store: Path | str, name: str) -> Champion | None:
    """The champion in force; None when no model of this name was ever promoted.

    Raises:
        NotPromotable: champion.json is damaged or was lost, or its version is not in the store.
    """
    return read_standing(open_storage(store), name).champion


def read_standing(storage: Storage, name: str) -> Standing:
    """The champion in force, and what a change of it must name.

    Raises: as read_champion.
    """
    file = champion_file(name)
    place = f"{storage.uri}/{file}"
    found = storage.read(file)
    if found is None:
        if versions := published_versions(storage, name):
            listed = ", ".join(map(str, versions[-5:]))
            raise NotPromotable(f"{place}: is missing, but versions {listed} are there; {_put_in_force(storage, name)}")
        return Standing(champion=None, tag=None)
    try:
        document = parse_json(found.text)
    except ValueError as error:
        raise NotPromotable(f"{place}: not valid JSON ({error}); {_put_in_force(storage, name)}") from error
    champion = None if document == _nobody(name) else _champion(document, place, name, _put_in_force(storage, name))
    if champion and not storage.exists(f"{version_folder(name, champion.version)}/model/{MODEL_JSON}"):
        raise NotPromotable(
            f"{place}: names version {champion.version}, which is not in the store; restore it, or {_put_in_force(storage, name)}"
        )
    return Standing(champion=champion, tag=found.tag)


def check_champion(store: Path | str, name: str) -> Champion | None:
    """The champion in force, every file of it held against model.json: for the first step of a run, before hours of training.

    Files of a local store are read; of those in S3, the digests are those that S3 keeps since they were published.

    Raises:
        NotPromotable: as read_champion; or a file is missing, damaged, or of another model.
    """
    storage = open_storage(store)
    champion = read_standing(storage, name).champion
    if champion is None:
        return None
    check_files(storage, name, champion.version, champion.model_digest)
    return champion


def check_files(storage: Storage, name: str, version: int, digest: str) -> None:
    """Every file of a version's model held against model.json, and that against its digest.

    Raises:
        NotPromotable: a file is missing, damaged, or of another model.
    """
    folder = f"{version_folder(name, version)}/model"
    place, what_to_do = f"{storage.uri}/{folder}", _put_in_force(storage, name)
    card_file = storage.read(f"{folder}/{MODEL_JSON}")
    if card_file is None or hashlib.sha256(card_file.text.encode()).hexdigest() != digest:
        raise NotPromotable(f"{place}/{MODEL_JSON}: is not that of version {version}, {digest[:12]}; {what_to_do}")
    try:
        listed = {file.path: file for file in model_card(parse_json(card_file.text), f"{place}/{MODEL_JSON}").files}
    except ValueError as error:
        raise NotPromotable(f"{place}/{MODEL_JSON}: not valid JSON ({error}); {what_to_do}") from error
    stored = {file.name: file for file in storage.files(folder) if file.name != MODEL_JSON}
    if different := sorted(listed.keys() ^ stored.keys()):
        where = "missing" if different[0] in listed else f"not listed in {MODEL_JSON}"
        raise NotPromotable(f"{place}/{different[0]}: {where}; {what_to_do}")
    for path, file in stored.items():
        found = file.sha256 or _digest(storage, f"{folder}/{path}")
        if (file.size, found) != (listed[path].bytes, listed[path].sha256):
            raise NotPromotable(f"{place}/{path}: damaged, it differs from {MODEL_JSON}; {what_to_do}")


def write_champion(store: Path | str, champion: Champion, tag: str | None = None) -> None:
    """Put a version in force: a reader sees the old champion or the new one.

    Args:
        tag: of the Standing that the decision was made by; None where there was no champion.json.
    Raises:
        StorageConflict: the champion is another one by now; nothing was changed.
    """
    text = json.dumps(asdict(champion), indent=2, allow_nan=False) + "\n"
    open_storage(store).swap(champion_file(champion.name), text, tag)


def open_standing(storage: Storage, name: str) -> None:
    """Say that there is no champion yet, before there is a first version.

    Raises:
        StorageConflict: somebody else was first.
    """
    storage.swap(champion_file(name), json.dumps(_nobody(name), indent=2) + "\n", None)


def published_versions(storage: Storage, name: str) -> list[int]:
    """Numbers of the versions that are there as a whole."""
    numbers = sorted(int(folder) for folder in storage.folders(f"{name}/versions") if folder.isdecimal())
    return [number for number in numbers if storage.exists(f"{version_folder(name, number)}/{VERSION_JSON}")]


def _nobody(name: str) -> dict[str, Any]:
    return {"format_version": FORMAT_VERSION, "name": name, "version": None}


def _put_in_force(storage: Storage, name: str) -> str:
    return f"put a version in force: ctrflow models rollback {storage.uri} --name {name} --to N"


def _champion(document: Any, place: str, name: str, what_to_do: str) -> Champion:
    names = {field.name for field in fields(Champion)}
    # Of before there was a history.
    document = {"history": [], **document} if isinstance(document, dict) else document
    if not isinstance(document, dict) or document.keys() != names or document["format_version"] != FORMAT_VERSION:
        raise NotPromotable(f"{place}: not a champion.json of version {FORMAT_VERSION}; {what_to_do}")
    try:
        champion = Champion(**{**document, "history": tuple(Change(**change) for change in document["history"])})
    except TypeError as error:
        raise NotPromotable(f"{place}: history is no list of changes ({error}); {what_to_do}") from error
    if wrong := wrong_value(Champion, champion, "the document"):
        raise NotPromotable(f"{place}: {wrong}; {what_to_do}")
    if champion.name != name:
        raise NotPromotable(f"{place}: is of model {champion.name!r}, not of {name!r}; {what_to_do}")
    return champion


def _digest(storage: Storage, name: str) -> str:
    digest = hashlib.sha256()
    with storage.open(name) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
