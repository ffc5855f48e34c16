"""The model folder that a training job leaves: what it must hold, how it is checked, how it scores.

    <model>/saved_model/    signature serving_default: ids int64 [B, F], values float32 [B, F] -> probability float32 [B]
            weights.npz
            transform.json  of the dataset, where raw rows were columns; what makes ids and values of rows to score
            model.json      written last; lists every other file with its size and digest

Array suffixes: B rows, F fields.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.documents import read_json, wrong_value
from components.errors import NotPromotable
from components.transforms import TRANSFORM

FORMAT_VERSION = 1
MODEL_JSON = "model.json"
SAVED_MODEL = "saved_model"

Scorer = Callable[[NDArray[np.int64], NDArray[np.float32]], NDArray[np.float64]]


@dataclass(frozen=True, kw_only=True)
class ModelFile:
    """One file of a model; path relative to the model folder, with forward slashes."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """model.json. `config` holds the training program's settings as it wrote them; keys unknown here are left alone.

    `negative_sampling_rate` is the share of the negative rows that the training saw. The saved model is corrected for it, so that
    its probabilities are those of the whole traffic; weights.npz is not.
    """

    strategy: str
    rank: int
    world_size: int
    step: int
    examples: int
    field_size: int
    feature_size: int
    id_base: int
    data_digest: str
    config: Mapping[str, Any]
    parameter_checksum: str
    ranks_agreed: bool
    metrics: Mapping[str, float]
    files: tuple[ModelFile, ...]
    negative_sampling_rate: float = 1.0


def model_digest(model: Path) -> str:
    """SHA-256 of model.json, which names the digests of all other files: the identity of a model, whatever folder it lies in."""
    return hashlib.sha256((model / MODEL_JSON).read_bytes()).hexdigest()


def read_model(model: Path, *, verify: bool = True) -> ModelCard:
    """The card of a model folder. `verify` also reads every file and compares sizes and digests.

    Raises:
        NotPromotable: model.json or a file is missing, damaged or not listed; the message names it.
    """
    path = model / MODEL_JSON
    if not path.is_file():
        raise NotPromotable(f"{model}: no {MODEL_JSON} there, so training did not finish; train again")
    try:
        document = read_json(path)
    except ValueError as error:
        raise NotPromotable(f"{path}: not valid JSON ({error}); train again") from error
    card = model_card(document, str(path))
    if verify:
        _verify(model, card.files)
    return card


def transform_problem(card: ModelCard, dataset: Path) -> str:
    """How a model's copy of transform.json differs from that of its dataset; empty when it does not, or neither has one."""
    path = dataset / TRANSFORM
    given = _digest(path) if path.is_file() else None
    kept = next((file.sha256 for file in card.files if file.path == TRANSFORM), None)
    if kept == given:
        return ""
    found = "it has none" if kept is None else f"it has {kept[:12]}"
    return f"{found}, {path} is {given[:12]}" if given else f"{found}, {dataset} has none"


def load_scorer(model: Path) -> Scorer:
    """A function from ids [B, F] and values [B, F] to click probabilities float64 [B].

    Raises:
        NotPromotable: TensorFlow cannot load it, or its signature is not ours.
    """
    import tensorflow as tf  # seconds of import, for those only who score

    folder = model / SAVED_MODEL
    try:
        # TensorFlow takes the path for a pattern, in which [ ] * ? have a meaning; an open folder has a name without them.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            loaded = tf.saved_model.load(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        signature = loaded.signatures["serving_default"]
    except (OSError, KeyError, ValueError, tf.errors.OpError) as error:
        raise NotPromotable(f"{folder}: TensorFlow cannot load it ({str(error).splitlines()[0]}); train again") from error
    if "probability" not in signature.structured_outputs:
        found = ", ".join(sorted(signature.structured_outputs))
        raise NotPromotable(f"{folder}: serving_default gives {found}, probability is expected; train again")

    def score(ids_BF: NDArray[np.int64], values_BF: NDArray[np.float32]) -> NDArray[np.float64]:
        # The function must hold `loaded`: its variables live no longer than it does.
        outputs = loaded.signatures["serving_default"](ids=tf.constant(ids_BF, tf.int64), values=tf.constant(values_BF, tf.float32))
        return np.asarray(outputs["probability"].numpy(), np.float64).reshape(-1)

    return score


def model_card(document: Any, path: str) -> ModelCard:
    """The card of a model.json; messages call it `path`.

    Raises:
        NotPromotable: it is none.
    """
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise NotPromotable(f"{path}: format_version {FORMAT_VERSION} is expected; train again")
    names = [field.name for field in fields(ModelCard)]
    # Models of before there was sampling were trained on all rows.
    document = {"negative_sampling_rate": 1.0, **document}
    if missing := [name for name in names if name not in document]:
        raise NotPromotable(f"{path}: no {', '.join(missing)}; train again")
    try:
        files = tuple(
            ModelFile(path=name, bytes=int(file["bytes"]), sha256=str(file["sha256"])) for name, file in document["files"].items()
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise NotPromotable(f"{path}: files is not a table of bytes and sha256 ({error!r}); train again") from error
    for name in ("rank", "world_size", "step", "examples", "field_size", "feature_size", "id_base"):
        if type(document[name]) is not int:
            raise NotPromotable(f"{path}: {name} is {document[name]!r}, a whole number is expected; train again")
    card = ModelCard(**{name: document[name] for name in names if name != "files"}, files=files)
    if wrong := wrong_value(ModelCard, card, "the document"):
        raise NotPromotable(f"{path}: {wrong}; train again")
    return card


def _verify(model: Path, files: tuple[ModelFile, ...]) -> None:
    listed = {file.path for file in files}
    if f"{SAVED_MODEL}/saved_model.pb" not in listed:
        raise NotPromotable(f"{model / MODEL_JSON}: lists no {SAVED_MODEL}/saved_model.pb; train again")
    for file in files:
        parts = PurePosixPath(file.path)
        if parts.is_absolute() or ".." in parts.parts:
            raise NotPromotable(f"{model / MODEL_JSON}: {file.path} lies outside the model folder; train again")
        path = model / parts
        if not path.is_file():
            raise NotPromotable(f"{path}: missing, {MODEL_JSON} lists it with {file.bytes:,} bytes; train again")
        if (size := path.stat().st_size) != file.bytes:
            raise NotPromotable(f"{path}: {size:,} bytes, {MODEL_JSON} says {file.bytes:,}; train again or copy it again")
        if _digest(path) != file.sha256:
            raise NotPromotable(f"{path}: damaged, its SHA-256 differs from {MODEL_JSON}; train again or copy it again")
    present = {path.relative_to(model).as_posix() for path in model.rglob("*") if not path.is_dir()}
    if strange := sorted(present - listed - {MODEL_JSON}):
        raise NotPromotable(f"{model / strange[0]}: not listed in {MODEL_JSON}; remove it or train again")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
