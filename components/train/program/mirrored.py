"""One process under tf.distribute.MirroredStrategy: a copy of the dense weights on every device, the table once.

The replicas' dense gradients are averaged by the cross-device operation of the settings, and every replica applies the
same update to its own copy. A copy of the table on every device would cost its memory again and an exchange of all its
rows; here the replicas read one, and the gradients of their distinct rows are summed as towers sum them.

Source: tf.distribute.MirroredStrategy; the operations are those of tf.distribute.CrossDeviceOps.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from components.train.program.agreement import state_checksum
from components.train.program.config import CrossDeviceName, TrainConfig
from components.train.program.devices import HOST, replica_devices
from components.train.program.embedding import apply_to_rows
from components.train.program.input import Source
from components.train.program.kernels import Rule, update_dense
from components.train.program.loss_scale import overflow
from components.train.program.model import Model
from components.train.program.optimizers import DenseOptimizer
from components.train.program.single import Single
from components.train.program.tower import combine_rows, split_batch
from components.train.program.traced import traced

CROSS_DEVICE: dict[CrossDeviceName, Any] = {
    "reduction_to_one": lambda: tf.distribute.ReductionToOneDevice(HOST),
    "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
    "nccl": tf.distribute.NcclAllReduce,
}


def update_variable(rule: Rule, variable: Any, slots: Sequence[Any], gradient: Any, rate: Any) -> None:
    """One step of an optimizer on a whole variable on a GPU, by TensorFlow's own operations; the compiled ones exist for CPUs only.

    The rules are those of optimizers.py; rate is Adam's with its bias correction in it, hence powers of 0 here.
    """
    if rule.l2:
        gradient += rule.l2 * variable
    if rule.optimizer == "adam":
        m, v = slots
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle, m=m.handle, v=v.handle, beta1_power=0.0, beta2_power=0.0, lr=rate,
            beta1=rule.beta_1, beta2=rule.beta_2, epsilon=rule.epsilon, grad=gradient,
        )  # fmt: skip
    elif rule.optimizer == "adagrad":
        tf.raw_ops.ResourceApplyAdagradV2(var=variable.handle, accum=slots[0].handle, lr=rate, epsilon=rule.epsilon, grad=gradient)
    elif rule.optimizer == "ftrl":
        accumulator, linear = slots
        tf.raw_ops.ResourceApplyFtrl(
            var=variable.handle, accum=accumulator.handle, linear=linear.handle, grad=gradient, lr=rate,
            l1=rule.ftrl_l1, l2=rule.ftrl_l2, lr_power=-0.5,
        )  # fmt: skip
    elif rule.optimizer == "momentum":
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle, accum=slots[0].handle, lr=rate, grad=gradient, momentum=rule.momentum
        )
    else:
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


class Mirrored(Single):
    """Synchronous data parallel training inside one process, by tf.distribute."""

    def __init__(self, config: TrainConfig, source: Source, model: Model) -> None:
        devices = replica_devices(config)
        self._on_gpus = "GPU" in devices[0]
        self._strategy = tf.distribute.MirroredStrategy(devices, CROSS_DEVICE[config.cross_device]())
        with tf.device(HOST):
            super().__init__(config, source, model)
        with self._strategy.scope():
            self.dense = [tf.Variable(variable.numpy()) for variable in self.dense]
            self._optimizer = DenseOptimizer(config, self.dense, model.kinds)

    @traced
    def _train(self, labels_B: Any, ids_BF: Any, values_BF: Any) -> Any:
        parts = split_batch((labels_B, ids_BF, values_BF), self._strategy.num_replicas_in_sync)
        with tf.device(HOST):
            rates = self._optimizer.rates(self._step.assign_add(1.0, read_value=True))

        def replica(part: tuple[Any, Any, Any]) -> Any:
            """Here a mirrored variable is this replica's copy."""
            context = tf.distribute.get_replica_context()
            value, dense, ids_U, gradient_UE = self.gradients(*part, context.replica_id_in_sync_group)
            if self.loss_scale is None:
                self._update_copies(context.all_reduce(tf.distribute.ReduceOp.MEAN, dense), rates)
                return value, ids_U, gradient_UE
            *dense, overflowed = context.all_reduce(tf.distribute.ReduceOp.MEAN, [*dense, overflow([*dense, gradient_UE])])
            tf.cond(tf.equal(overflowed, 0.0), lambda: self._update_copies(dense, rates), lambda: False)
            return value, ids_U, gradient_UE, overflowed

        own = self._strategy.experimental_distribute_values_from_function(lambda context: parts[context.replica_id_in_sync_group])
        found = [self._strategy.experimental_local_results(each) for each in self._strategy.run(replica, (own,))]
        losses, ids, rows = found[:3]
        with tf.device(HOST):
            ids_U, gradient_UE = combine_rows(ids, rows)
            if self.loss_scale is None:
                apply_to_rows(self._config, self.table, ids_U, gradient_UE, self._step)
            else:
                self.loss_scale.apply_if_finite(
                    tf.equal(found[3][0], 0.0),
                    lambda: apply_to_rows(self._config, self.table, ids_U, gradient_UE, self._step),
                )
            return tf.add_n(losses) / float(len(losses))

    def _update_copies(self, dense: Sequence[Any], rates: Sequence[Any]) -> bool:
        """One step of the optimizer on this replica's copies; True, because a branch of a graph must return something."""
        for rule, variable, slots, gradient, rate in zip(
            self._optimizer.rules, self.dense, self._optimizer.slots, dense, rates, strict=True
        ):
            if self._on_gpus:
                update_variable(rule, variable, slots, gradient, rate)
            else:
                # The last bit as `single` has it: what differs there, Adam makes 1,000 times as much of in 100 steps.
                update_dense(rule, [variable], [[slot] for slot in slots], [gradient], rate)
        return True

    def checksums(self) -> dict[str, str]:
        """Of the dense weights and their slots on every replica."""
        mirrored = [*self.dense, *(slot for same in self._optimizer.slots for slot in same)]
        copies = zip(*(self._strategy.experimental_local_results(variable) for variable in mirrored), strict=True)
        return {f"replica {index}": state_checksum(variables) for index, variables in enumerate(copies)}
