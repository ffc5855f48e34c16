"""What is learned and how: the settings of a training that do not depend on the machines it runs on.

The plan, the command line and the training program, in whose container little else of this package works, share this one list.
"""

import json
import math
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from components.errors import InvalidConfig

ModelName = Literal["deepfm", "wide_and_deep", "dcn_v2", "own"]
OptimizerName = Literal["adam", "adagrad", "ftrl", "momentum", "sgd"]
MODELS: tuple[ModelName, ...] = get_args(ModelName)
OPTIMIZERS: tuple[OptimizerName, ...] = get_args(OptimizerName)

# What the program derives from it must fit in 64 bits.
LARGEST_SEED = 2**32 - 1


def require(condition: bool, name: str, value: object, expected: str) -> None:
    """Refuse a setting by its name.

    Raises:
        InvalidConfig: the condition does not hold.
    """
    if not condition:
        raise InvalidConfig(f"{name} {value!r}: {expected}")


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What is learned and how.

    Attributes:
        model: which model; own takes the functions of `own_model`.
        own_model: a module, such as package.module, or a path that ends in .py, as the training container sees it.
        deep_layers: widths of the deep part; none leaves it out.
        cross_layers: of dcn_v2. cross_rank: rank of their matrices, which are the product of two thin ones; 0 = whole matrices.
        dropout: share of a deep layer's outputs that is dropped in training: one for each layer, one for all, or none.
        batch_norm: normalise each deep layer's outputs. batch_norm_momentum: how much of the moving statistics a step keeps.
        l2: the gradient of each weight that a step touches grows by l2 times that weight; biases are left alone.
        mixed_precision: matrix products of deep and cross layers in float16 on GPUs, in bfloat16 where the CPU has it.
        momentum: of optimizer momentum. ftrl_l1, ftrl_l2: strengths of optimizer ftrl's own regularization.
        learning_rate_factor: times the learning rate; never guessed from the number of workers.
        warmup_steps: steps over which the learning rate rises to its value.
    """

    model: ModelName = "deepfm"
    own_model: str = ""
    embedding_size: int = 32
    deep_layers: tuple[int, ...] = (128, 64, 32)
    cross_layers: int = 2
    cross_rank: int = 64
    dropout: tuple[float, ...] = ()
    batch_norm: bool = False
    batch_norm_momentum: float = 0.9
    l2: float = 0.0
    mixed_precision: bool = False
    optimizer: OptimizerName = "adam"
    momentum: float = 0.9
    ftrl_l1: float = 0.0
    ftrl_l2: float = 0.0
    learning_rate: float = 5e-4
    learning_rate_factor: float = 1.0
    warmup_steps: int = 0
    epochs: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        require(self.model in MODELS, "model", self.model, f"choose one of {', '.join(MODELS)}")
        require(self.optimizer in OPTIMIZERS, "optimizer", self.optimizer, f"choose one of {', '.join(OPTIMIZERS)}")
        require(
            bool(self.own_model) == (self.model == "own"),
            "own_model",
            self.own_model,
            "model own needs it, and only model own; a module such as package.module, or a path that ends in .py",
        )
        for name in ("embedding_size", "epochs", "cross_layers"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1 is needed")
        for name in ("warmup_steps", "cross_rank", "l2", "ftrl_l1", "ftrl_l2"):
            require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "must not be negative")
        for name in ("momentum", "batch_norm_momentum"):
            require(0 <= getattr(self, name) < 1, name, getattr(self, name), "must be in 0..1, and not 1")
        widths, rates = list(self.deep_layers), list(self.dropout)
        require(all(width >= 1 for width in widths), "deep_layers", widths, "every width must be at least 1")
        require(all(0 <= rate < 1 for rate in rates), "dropout", rates, "every rate must be in 0..1, and not 1")
        one_each = f"give one rate, or one for each of the {len(widths)} deep layers"
        require(len(rates) in (0, 1, len(widths)), "dropout", rates, one_each)
        for name in ("learning_rate", "learning_rate_factor"):
            require(0 < getattr(self, name) < math.inf, name, getattr(self, name), "must be a positive number")
        require(0 <= self.seed <= LARGEST_SEED, "seed", self.seed, f"must be in 0..{LARGEST_SEED}")

    def learning(self) -> dict[str, Any]:
        """These settings alone by name, of whatever class has more."""
        return {item.name: getattr(self, item.name) for item in fields(Learning)}


def as_text(value: Any) -> str:
    """A setting as the text that a hyperparameter is."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value)
