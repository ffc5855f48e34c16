"""The model that a training leaves: a SavedModel to serve, the weights, the transform of its rows, and model.json to check them by.

Rank 0 alone writes it.
"""

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.manifest import Manifest, manifest_digest
from components.train.program.config import TrainConfig
from components.train.program.model import Model
from components.train.program.traced import traced

MODEL_CARD = "model.json"


def parameter_checksum(table: NDArray[np.float32], dense: Sequence[NDArray[np.float32]]) -> str:
    """SHA-256 of all weights, equal only when every bit is."""
    digest = hashlib.sha256()
    for array in (table, *dense):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Scorer(tf.Module):  # type: ignore[misc]
    """The trained model as TensorFlow Serving loads it: ids and values in, probability out.

    A training that saw only a share w of the negative rows saw odds of a click 1/w times too high. What is served is true of the
    whole traffic: the logit plus ln w, the same as q = p / (p + (1 - p) / w).
    Source: He et al. 2014, Practical Lessons from Predicting Clicks on Ads at Facebook, section 6.3.
    """

    def __init__(
        self,
        model: Model,
        table: NDArray[np.float32],
        dense: Sequence[NDArray[np.float32]],
        field_size: int,
        negative_rate: float = 1.0,
    ) -> None:
        super().__init__()
        self._model = model
        self._correction = float(np.log(negative_rate))
        self.table = tf.Variable(table, trainable=False)
        self.dense = [tf.Variable(value, trainable=False) for value in dense]
        ids = tf.TensorSpec([None, field_size], tf.int64, "ids")
        values = tf.TensorSpec([None, field_size], tf.float32, "values")
        self.score = traced(self._score, [ids, values])

    def _score(self, ids: Any, values: Any) -> dict[str, Any]:
        logits = self._model.logits(self.dense, tf.gather(self.table, ids), ids, values)
        return {"probability": tf.sigmoid(logits + self._correction if self._correction else logits)}


def write_model(
    folder: Path,
    config: TrainConfig,
    manifest: Manifest,
    model: Model,
    table: NDArray[np.float32],
    dense: Sequence[NDArray[np.float32]],
    transform: Path,
    trained: dict[str, Any],
) -> dict[str, Any]:
    """Write the model folder; returns model.json, which the caller writes last.

    Args:
        transform: the dataset's transform.json, which a model of columns is served with; there is no such file for a model of ids.
        trained: what only the training knows: strategy, world_size, step, examples, ranks_agreed, metrics.
    """
    schema = manifest.schema
    scorer = Scorer(model, table, dense, schema.field_size, manifest.negative_sampling_rate)
    tf.saved_model.save(scorer, str(folder / "saved_model"), signatures={"serving_default": scorer.score})
    names = {f"dense_{index}": value for index, value in enumerate(dense)}
    np.savez(folder / "weights.npz", table=table, **names)  # type: ignore[arg-type]
    if transform.is_file():
        shutil.copyfile(transform, folder / transform.name)
    files = {
        str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": file_digest(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MODEL_CARD
    }
    return {
        "format_version": 1,
        "rank": 0,
        **trained,
        "field_size": schema.field_size,
        "feature_size": schema.feature_size,
        "id_base": schema.id_base,
        "data_digest": manifest_digest(manifest),
        "negative_sampling_rate": manifest.negative_sampling_rate,
        "config": asdict(config),
        "dense": {f"dense_{index}": name for index, name in enumerate(model.names)},
        "parameter_checksum": parameter_checksum(table, dense),
        "files": files,
    }


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
