"""Starting from the champion's weights: channel `champion` holds its model folder, of which weights.npz and model.json are read.

A vocabulary that grew keeps the rows of the champion, and its new rows begin as those of a fresh table. Nothing else may differ,
but for the share of negative rows that training sees: the bias begins at the champion's, moved by what that changes in the odds.
Optimizer slots and the step count begin anew: the champion's moments are of other data, and are not kept with a model.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.errors import WorkflowError
from components.records import Schema
from components.train.program.config import TrainConfig
from components.train.program.embedding import initial_table
from components.train.program.model import Model
from components.train.program.optimizers import SLOT_STARTS

log = logging.getLogger(__name__)

MODEL_CARD, WEIGHTS = "model.json", "weights.npz"
# The dense weight that every model begins with.
BIAS = 0
# Models of before there was a choice are DeepFM.
FIRST_MODEL = "deepfm"


@dataclass(frozen=True, kw_only=True)
class Champion:
    """A model that was trained before: its card, its table [V, E] and its dense weights."""

    card: Mapping[str, Any]
    table: NDArray[np.float32]
    dense: tuple[NDArray[np.float32], ...]


@dataclass(frozen=True, kw_only=True)
class WarmStart:
    """What a training took from the champion besides all dense weights; `rows_new` rows of the table began as in a fresh one."""

    rows_kept: int
    rows_new: int
    champion_checksum: str


def read_champion(folder: Path) -> Champion:
    """The champion of the channel's folder.

    Raises:
        WorkflowError: a file is missing or damaged, named.
    """
    for name in (MODEL_CARD, WEIGHTS):
        if not (folder / name).is_file():
            raise WorkflowError(f"{folder / name}: missing; warm_start needs a channel champion that holds a model folder")
    try:
        card = json.loads((folder / MODEL_CARD).read_text(encoding="utf-8"))
        listed = card["files"][WEIGHTS]["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise WorkflowError(f"{folder / MODEL_CARD}: not the model.json of a training ({error!r})") from error
    with (folder / WEIGHTS).open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != listed:
            raise WorkflowError(f"{folder / WEIGHTS}: damaged, its SHA-256 differs from {MODEL_CARD}; copy it again")
    with np.load(folder / WEIGHTS) as weights:
        dense = tuple(weights[f"dense_{index}"] for index in range(len(weights.files) - 1))
        return Champion(card=card, table=weights["table"], dense=dense)


def check_champion(champion: Champion, config: TrainConfig, model: Model, rows: int, fields: int, id_base: int) -> None:
    """Refuse a champion that this training cannot go on from.

    Args:
        rows, fields, id_base: feature_size, field_size and id_base of the dataset.
    Raises:
        WorkflowError: it is of another model, vocabulary or shape; the message names what differs, and both.
    """
    settings = champion.card.get("config", {})
    own = f" {config.own_model}" if config.own_model else ""
    theirs = f" {settings.get('own_model')}" if settings.get("own_model") else ""
    pairs = [
        ("model", settings.get("model", FIRST_MODEL) + theirs, config.model + own),
        ("field_size", champion.card.get("field_size"), fields),
        ("id_base", champion.card.get("id_base"), id_base),
        ("embedding_size", settings.get("embedding_size"), config.embedding_size),
        ("deep_layers", list(settings.get("deep_layers", [])), list(config.deep_layers)),
    ]
    for name, theirs_, ours in pairs:
        if theirs_ != ours:
            raise WorkflowError(f"warm_start: {name} {theirs_} in the champion, {ours} in this training; train without warm_start")
    found = [("table", champion.table.shape), *((f"dense_{index}", each.shape) for index, each in enumerate(champion.dense))]
    wanted = [("table", (rows, model.row_width)), *((f"dense_{i}", each.shape) for i, each in enumerate(model.initial_dense()))]
    if len(found) != len(wanted):
        raise WorkflowError(
            f"warm_start: {len(champion.dense)} dense weights in the champion, {len(wanted) - 1} in this model; "
            "it is of other settings, train without warm_start"
        )
    for (name, shape), (_, expected) in zip(found, wanted, strict=True):
        grown = name == "table" and shape[1:] == expected[1:] and shape[0] <= expected[0]
        if shape != expected and not grown:
            shown = model.names[int(name.removeprefix("dense_"))] if name != "table" else name
            shrunken = "; a vocabulary may grow, not shrink" if name == "table" and shape[1:] == expected[1:] else ""
            raise WorkflowError(f"warm_start: {shown} {shape} in the champion, {expected} in this model{shrunken}")


def warm_state(
    champion: Champion, config: TrainConfig, model: Model, shapes: Mapping[str, tuple[int, ...]], negative_rate: float
) -> dict[str, NDArray[Any]]:
    """What a strategy takes over instead of a checkpoint of step 0: the champion's weights, fresh slots, new rows as they begin.

    Args:
        champion: one that `check_champion` has passed. shapes: the strategy's own, by name.
        negative_rate: share of the negative rows that this training sees.
    """
    # A training that sees a share w of the negative rows sees log-odds that are ln 1/w too high.
    moved = np.log(champion.card.get("negative_sampling_rate", 1.0) / negative_rate)
    table = initial_table(config, model.row_width, 0, shapes["table"][0])
    table[: len(champion.table), : model.row_width] = champion.table
    state: dict[str, NDArray[Any]] = {"table": table}
    for name, shape in shapes.items():
        slot = name.partition("_slot_")[2]
        if slot:
            state[name] = np.full(shape, SLOT_STARTS[config.optimizer][int(slot)], np.float32)
        elif name.startswith("dense_"):
            index = int(name.removeprefix("dense_"))
            state[name] = champion.dense[index] + np.float32(moved if index == BIAS else 0.0)
        elif name == "step":
            state[name] = np.zeros((), np.float32)
    return state


def start_warm(
    folder: Path,
    config: TrainConfig,
    schema: Schema,
    model: Model,
    shapes: Mapping[str, tuple[int, ...]],
    negative_rate: float = 1.0,
) -> tuple[dict[str, NDArray[Any]], WarmStart]:
    """The state that a training begins with, from the champion in the channel's folder, and what was taken from it.

    Args:
        shapes: the strategy's own, by name. negative_rate: share of the negative rows that this training sees.
    Raises:
        WorkflowError: no sound champion, or one that this training cannot go on from.
    """
    champion = read_champion(folder)
    check_champion(champion, config, model, schema.feature_size, schema.field_size, schema.id_base)
    kept = len(champion.table)
    checksum = champion.card.get("parameter_checksum", "")
    warm = WarmStart(rows_kept=kept, rows_new=schema.feature_size - kept, champion_checksum=checksum)
    log.info("warm start from champion %s: %d rows kept, %d new, optimizer slots begin anew", checksum[:12], kept, warm.rows_new)
    return warm_state(champion, config, model, shapes, negative_rate), warm
