"""How weights are updated, those of the embedding rows of a batch and those that every step touches whole.

With gradient g, step t counted from 1 and rate r, element by element; s, v and z begin at 0, n at 0.1:

    adam      m = 0.9 m + 0.1 g;  v = 0.999 v + 0.001 g^2;  p -= r sqrt(1 - 0.999^t) / (1 - 0.9^t) m / (sqrt(v) + 1e-7)
    adagrad   n = n + g^2;  p -= r g / (sqrt(n) + 1e-7)
    ftrl      n' = n + g^2;  z += g - (sqrt(n') - sqrt(n)) / r p;  p = (clip(z, -l1, l1) - z) / (sqrt(n') / r + 2 l2)
    momentum  s = momentum s - r g;  p += s
    sgd       p -= r g

They are those of tf.keras.optimizers with its default constants. Source: Kingma and Ba 2015 (Adam, with Keras's epsilon-hat);
Duchi et al. 2011 (Adagrad); McMahan et al. 2013, "Ad Click Prediction: a View from the Trenches" (FTRL-Proximal, whose l1 and l2
are the settings ftrl_l1 and ftrl_l2).

FTRL forgets what weights begin with, because z knows only gradients: after the first step they are nearly 0. First-order weights
begin there anyway; layers learn slowly from there, and dcn_v2, in which everything is multiplied with embeddings, not at all.

On rows all of them are *lazy*: a row whose id is not in the batch keeps its parameters and slots as they are, where dense Adam
would decay its moments and go on moving it, and dense momentum would let it roll on. Dense FTRL would set a row that was never
seen to 0. The step count of Adam's bias correction is global. Adagrad and SGD change nothing where the gradient is 0, so lazy and
dense are the same. Source: TensorFlow Addons, LazyAdam.

The setting `l2` adds l2 * p to the gradient g of weights, not of biases. It is part of the rule, not of the loss, so that it acts
once on each row that the global batch touches, however many workers found it. L2 over the whole table would shrink all rows at
every step; here a row shrinks as often as it is seen, and one that is never seen keeps what it began with.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from components.learning import OptimizerName
from components.train.program.architecture import WeightKind
from components.train.program.config import TrainConfig
from components.train.program.kernels import Rule, update_dense

ADAM_BETA_1, ADAM_BETA_2 = 0.9, 0.999
EPSILON = 1e-7

# What each slot of a parameter begins with; as many slots as there are numbers.
SLOT_STARTS: dict[OptimizerName, tuple[float, ...]] = {
    "adam": (0.0, 0.0),
    "adagrad": (0.1,),
    "ftrl": (0.1, 0.0),
    "momentum": (0.0,),
    "sgd": (),
}


def rule_of(config: TrainConfig) -> Rule:
    """The update rule of weights."""
    return Rule(
        config.optimizer,
        l2=config.l2,
        beta_1=ADAM_BETA_1,
        beta_2=ADAM_BETA_2,
        epsilon=EPSILON,
        momentum=config.momentum,
        ftrl_l1=config.ftrl_l1,
        ftrl_l2=config.ftrl_l2,
    )


def learning_rate(config: TrainConfig, step: Any) -> Any:
    """The rate of a step counted from 1: linear over `warmup_steps`, then constant."""
    warmup = max(config.warmup_steps, 1)
    return config.learning_rate * config.learning_rate_factor * tf.minimum(1.0, step / float(warmup))


def effective_rate(config: TrainConfig, step: Any) -> Any:
    """The learning rate of a step counted from 1, a float32 scalar; of Adam, with the bias correction of its moments.

    Source: Kingma and Ba 2015, the reordered form at the end of section 2.
    """
    rate = learning_rate(config, step)
    if config.optimizer != "adam":
        return rate
    # In float64: 1 - 0.999 ** step has only four digits in float32 at the first steps.
    count = tf.cast(step, tf.float64)
    correction = tf.sqrt(1 - tf.pow(tf.constant(ADAM_BETA_2, tf.float64), count)) / (
        1 - tf.pow(tf.constant(ADAM_BETA_1, tf.float64), count)
    )
    return rate * tf.cast(correction, tf.float32)


def alike(config: TrainConfig, kinds: Sequence[WeightKind]) -> list[tuple[Rule, bool]]:
    """What the update of each kind of dense variable depends on: its rule, and whether it is a moving statistic."""
    rule = rule_of(config)
    rules: dict[WeightKind, Rule] = {"weight": rule, "bias": rule._replace(l2=0.0), "moving": Rule("sgd")}
    return [(rules[kind], kind == "moving") for kind in kinds]


class DenseOptimizer:
    """The rules for the variables that every step touches whole.

    Biases are left out of `l2`. The moving statistics of batch normalisation are not learned: their gradient is the distance to the
    statistic of the batch, and a step takes a fixed share of it. So whoever averages gradients averages them too.

    Attributes:
        rules: of each variable. slots: of each variable, as many as its rule has.
    """

    def __init__(self, config: TrainConfig, variables: Sequence[Any], kinds: Sequence[WeightKind]) -> None:
        self._config, self._variables = config, variables
        self._alike = alike(config, kinds)
        self.rules = [rule for rule, _ in self._alike]
        self.slots = [
            [tf.Variable(tf.fill(variable.shape, start)) for start in SLOT_STARTS[rule.optimizer]]
            for variable, rule in zip(variables, self.rules, strict=True)
        ]

    def rates(self, step: Any) -> list[Any]:
        """The rate of each variable in a step counted from 1."""
        rate = effective_rate(self._config, step)
        return [1 - self._config.batch_norm_momentum if moving else rate for _, moving in self._alike]

    def apply(self, gradients: Sequence[Any], step: Any) -> None:
        """One step, with one operation for all variables of the same rule."""
        rates = self.rates(step)
        for each in dict.fromkeys(self._alike):
            same = [index for index, other in enumerate(self._alike) if other == each]
            slots = list(zip(*(self.slots[index] for index in same), strict=True))
            own = [self._variables[index] for index in same]
            update_dense(each[0], own, slots, [gradients[index] for index in same], rates[same[0]])

    def named(self, step: Any) -> dict[str, Any]:
        """Step, variables and slots by the names that a checkpoint gives them."""
        found = {"step": step, **{f"dense_{index}": variable for index, variable in enumerate(self._variables)}}
        for index, slots in enumerate(self.slots):
            found |= {f"dense_{index}_slot_{number}": slot for number, slot in enumerate(slots)}
        return found
