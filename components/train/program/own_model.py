"""A model of one's own, from a Python module or file that the training container can import. It needs two functions:

    def weights(field_size, embedding_size, random):
        '''The dense weights it needs, as numpy arrays by name; `random` is a numpy Generator seeded by the settings.'''
        return {"relation": 0.01 * random.standard_normal((field_size, field_size))}

    def logits(weights, ids, values, embeddings):
        '''Logits [rows] in TensorFlow. ids int32 and values float32 [rows, fields], embeddings float32 [rows, fields, embedding
        size], not scaled by the values; weights as tensors by name.'''
        scaled = embeddings * values[:, :, tf.newaxis]
        products = tf.matmul(scaled, scaled, transpose_b=True)
        return tf.reduce_sum(products * weights["relation"], axis=[1, 2])

The log-odds of the click rate are added as a trained bias. Weights of two or more dimensions are decayed by `l2`, others are taken
for biases. Embeddings, optimizers and strategies are those of every model; a saved model needs the file no more.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

from components.errors import InvalidConfig
from components.train.program.architecture import TrainingPass, Weight
from components.train.program.config import TrainConfig
from components.train.program.lookup import CellRows, Lookup

FUNCTIONS = ("weights", "logits")


def load_module(name: str) -> ModuleType:
    """The module of a dotted name, or of a path that ends in .py.

    Raises:
        InvalidConfig: there is none, or it lacks a function.
    """
    if name.endswith(".py"):
        path = Path(name)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise InvalidConfig(f"own_model {name}: no such file in the training container")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            # Its own imports may fail too: then that module is the one to name.
            raise InvalidConfig(f"own_model {name}: no module {error.name} in the training container") from error
    missing = [function for function in FUNCTIONS if not callable(getattr(module, function, None))]
    if missing:
        raise InvalidConfig(f"own_model {name}: it has no function {' and no function '.join(missing)}")
    return module


class OwnModel:
    def __init__(self, config: TrainConfig, field_size: int) -> None:
        self.row_width = config.embedding_size
        self._name, self._field_size = config.own_model, field_size
        self._module = load_module(config.own_model)
        function = self._module.logits
        # Ours needs no AutoGraph, but somebody else's may branch on a tensor.
        self._logits_of = tf.autograph.to_graph(function) if inspect.isfunction(function) else function
        self._names: tuple[str, ...] = ()

    def weights(self, random: np.random.Generator) -> list[Weight]:
        """Those of the module, whose logits are tried on two rows, so that a mistake shows before training starts."""
        given = self._module.weights(self._field_size, self.row_width, random)
        if not isinstance(given, dict):
            raise InvalidConfig(f"own_model {self._name}: weights gives {type(given).__name__}, a dict of arrays is expected")
        found = []
        for name, value in given.items():
            array = np.array(value, np.float32)
            if not np.isfinite(array).all():
                raise InvalidConfig(f"own_model {self._name}: weight {name} is not finite")
            found.append(Weight(str(name), array, "weight" if array.ndim > 1 else "bias"))
        self._names = tuple(weight.name for weight in found)
        self._try(found)
        return found

    def _try(self, weights: Sequence[Weight]) -> None:
        # In a graph of its own, which runs nothing: once TensorFlow has run, a strategy cannot divide its devices.
        with tf.Graph().as_default():
            cells = tf.zeros([2, self._field_size])
            zeros = CellRows(tf.zeros([2, self._field_size, self.row_width]), cells, cells)
            logits = self._logits([tf.constant(weight.value) for weight in weights], zeros)
        if not tf.is_tensor(logits) or not logits.shape.is_compatible_with([2]) or logits.dtype != tf.float32:
            shown = f"{logits.dtype.name} {list(logits.shape)}" if tf.is_tensor(logits) else type(logits).__name__
            raise InvalidConfig(f"own_model {self._name}: logits gives {shown} for 2 rows, float32 [2] is expected")

    def _logits(self, weights: Sequence[Any], lookup: Lookup) -> Any:
        by_name = dict(zip(self._names, weights, strict=True))
        return self._logits_of(by_name, lookup.ids(), lookup.values_BF, lookup.columns(0))

    def logits(self, bias: Any, weights: Sequence[Any], lookup: Lookup, training: TrainingPass | None) -> Any:
        return self._logits(weights, lookup) + bias
