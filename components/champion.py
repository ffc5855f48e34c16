"""The champion: the version of a model that the store says is in force.

<store>/<name>/champion.json
               versions/<n>/model/...
"""

import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from components.documents import read_json, wrong_value
from components.errors import InvalidConfig, NotPromotable
from components.storage import write_json_atomic

FORMAT_VERSION = 1
CHAMPION_JSON = "champion.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True, kw_only=True)
class Champion:
    """champion.json. AUC and log loss (nats a row) were measured when it was promoted, on the data of that day."""

    format_version: int = FORMAT_VERSION
    name: str
    version: int
    model_digest: str
    data_digest: str
    auc: float
    log_loss: float
    promoted_at: str
    run_id: str


def check_name(name: str) -> None:
    """A model's name becomes a folder of the store.

    Raises:
        InvalidConfig: it could leave the store, or is no plain name.
    """
    if not _NAME.fullmatch(name):
        raise InvalidConfig(f"name {name!r}: 1 to 63 letters, digits, dots, dashes or underscores, the first a letter or digit")


def champion_path(store: Path, name: str) -> Path:
    check_name(name)
    return store / name / CHAMPION_JSON


def version_path(store: Path, name: str, version: int) -> Path:
    """Folder of one version; its model lies in `model` below it."""
    check_name(name)
    return store / name / "versions" / str(version)


def champion_model(store: Path, champion: Champion) -> Path:
    """The champion's model folder."""
    return version_path(store, champion.name, champion.version) / "model"


def read_champion(store: Path, name: str) -> Champion | None:
    """The champion in force; None when no model of this name was ever promoted.

    Raises:
        NotPromotable: champion.json is damaged, or its version is not in the store.
    """
    path = champion_path(store, name)
    try:
        document = read_json(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise NotPromotable(f"{path}: not valid JSON ({error}); write it anew for one of versions/") from error
    names = {field.name for field in fields(Champion)}
    if not isinstance(document, dict) or document.keys() != names or document["format_version"] != FORMAT_VERSION:
        raise NotPromotable(f"{path}: not a champion.json of version {FORMAT_VERSION}; write it anew for one of versions/")
    champion = Champion(**document)
    if wrong := wrong_value(Champion, champion, "the document"):
        raise NotPromotable(f"{path}: {wrong}; write it anew for one of versions/")
    if champion.name != name:
        raise NotPromotable(f"{path}: is of model {champion.name!r}, not of {name!r}; write it anew for one of versions/")
    if not champion_model(store, champion).is_dir():
        raise NotPromotable(f"{path}: names version {champion.version}, which is not in the store; restore or rewrite it")
    return champion


def write_champion(store: Path, champion: Champion) -> None:
    """Put a version in force, atomically: a reader sees the old champion or the new one."""
    write_json_atomic(champion_path(store, champion.name), asdict(champion))
