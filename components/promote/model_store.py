"""The model store: numbered versions of a named model, one of them in force.

    <store>/<name>/versions/<n>/model/...  evaluation.json  promotion.json     n = 1, 2, 3, ..., never used twice
                   champion.json
                   .lock

A version becomes visible by one rename, and comes into force by another. Writers take turns by the lock; readers need none.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.champion import check_name, version_path
from components.errors import InvalidConfig
from components.storage import publish_folder, write_json_atomic

PROMOTION_JSON = "promotion.json"


@contextmanager
def locked(store: Path, name: str) -> Iterator[None]:
    """Hold the right to change this model's part of the store. The kernel gives it back when the process ends, however it ends.

    Raises:
        InvalidConfig: the store cannot be written.
    """
    check_name(name)
    folder = store / name
    try:
        (folder / "versions").mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise InvalidConfig(f"{folder}: cannot be written ({error.strerror}); choose another store") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def next_version(store: Path, name: str) -> int:
    """One more than the largest number ever given."""
    numbers = [int(path.name) for path in (store / name / "versions").iterdir() if path.name.isdecimal()]
    return max(numbers, default=0) + 1


def add_version(store: Path, name: str, version: int, model: Path, evaluation: Path, promotion: dict[str, object]) -> Path:
    """Copy a model into the store under a new number; the folder appears whole or not at all. Call it `locked`.

    Returns:
        The model folder within the store.
    """
    target = version_path(store, name, version)
    for leftover in target.parent.glob(".[0-9]*.*"):
        # We hold the lock, so whoever was writing this was killed. Anything else that is hidden here is not ours.
        if leftover.is_dir():
            shutil.rmtree(leftover)
    with publish_folder(target, marker=PROMOTION_JSON) as work:
        shutil.copytree(model, work / "model")
        shutil.copyfile(evaluation, work / "evaluation.json")
        write_json_atomic(work / PROMOTION_JSON, promotion)
    return target / "model"
