"""The embedding part of a training step as compiled TensorFlow operations (kernels.cc), threaded and deterministic.

Plain TensorFlow does the same with a dozen passes over [B, F, D] tensors and a sum over equal ids on one thread, which took
most of a step. A served model needs none of this: `Model.logits` is plain TensorFlow.

Shapes: B rows of the batch, F fields, N = B * F cells, U distinct ids, D embedding size, E = 1 + D numbers a row.
"""

from collections.abc import Sequence, Set
from functools import cache
from typing import Any, NamedTuple

import tensorflow as tf

from components.errors import WorkflowError
from components.learning import OptimizerName
from components.resources import cpu_flags
from components.train.program.kernel_library import INSTRUCTIONS, library_path

REMEDY = "run python images/training/build_kernels.py"


class Cells(NamedTuple):
    """The cells of a batch by id. Tensors of int32; a tuple, so that a tf.function takes and returns it.

    Attributes:
        ids_U: distinct ids, ascending.
        index: which of them each cell uses, in the shape of the ids.
        order_N: flat cell numbers sorted by id, equal ids in order.
        starts_U1: where in `order_N` each distinct id starts, and at the end N.
    """

    ids_U: Any
    index: Any
    order_N: Any
    starts_U1: Any


def check_cpu(flags: Set[str]) -> None:
    """Refuse a CPU that would end this process by SIGILL.

    Args:
        flags: of the CPU; empty where they are not known, which is no reason to refuse.
    Raises:
        WorkflowError: the CPU lacks instructions that the library is compiled for.
    """
    missing = [name for name in INSTRUCTIONS if name not in flags]
    if flags and missing:
        raise WorkflowError(
            f"this CPU has no {' and no '.join(missing)}, which the compiled operations need; train on a machine with"
            " them: Intel since Haswell, AMD since Excavator"
        )


@cache
def load() -> Any:
    """The operations; every process that runs them, also as another's server, must have called this.

    Raises:
        WorkflowError: the library was not built, or not for this source and TensorFlow, or the CPU cannot run it.
    """
    check_cpu(cpu_flags())
    path = library_path()
    if not path.is_file():
        raise WorkflowError(f"{path}: missing, the compiled operations; {REMEDY}")
    try:
        return tf.load_op_library(str(path))
    except tf.errors.NotFoundError as error:
        raise WorkflowError(f"{path} does not load: {str(error).splitlines()[0]}; delete it and {REMEDY}") from error


def group_by_id(ids: Any) -> Cells:
    """The distinct ids of int32 `ids` of any shape, none negative, and the cells that use each."""
    return Cells(*load().ctrflow_distinct_ids(ids))


def gather_rows(table: Any, ids_U: Any, width: int) -> Any:
    """The first `width` columns of a table's rows, float32 [U, width].

    Args:
        table: a variable [V, at least width].
    """
    return load().ctrflow_gather_rows(table.handle, ids_U, width=width)


def embedding_terms(rows_UE: Any, cells: Cells, values_BF: Any) -> tuple[Any, Any]:
    """First plus second order logits [B], and the scaled embeddings [B, F * D] as the deep part takes them.

    Its gradient by `rows_UE` is summed over equal ids already; there is none by the values.
    """
    logits_B, scaled_BX, _ = load().ctrflow_embedding_terms(rows_UE, cells.index, values_BF, cells.order_N, cells.starts_U1)
    return logits_B, scaled_BX


@tf.RegisterGradient("CtrflowEmbeddingTerms")
def _embedding_terms_gradient(operation: Any, of_logits: Any, of_scaled: Any, _: Any) -> list[Any]:
    rows, _, values, order, starts = operation.inputs
    of_rows = load().ctrflow_embedding_terms_grad(rows, values, order, starts, operation.outputs[2], of_logits, of_scaled)
    return [of_rows, None, None, None, None]


def expand_rows(rows_UE: Any, cells: Cells) -> Any:
    """The row of every cell, in the shape of the ids and one dimension more. Its gradient is summed over equal ids."""
    width = rows_UE.shape[1]

    @tf.custom_gradient
    def expand(rows: Any) -> Any:
        return tf.gather(rows, cells.index), lambda of_cells: sum_rows(tf.reshape(of_cells, [-1, width]), cells)

    return expand(rows_UE)


def sum_rows(rows_NE: Any, cells: Cells) -> Any:
    """Rows summed over equal ids, float32 [U, E]."""
    return load().ctrflow_sum_rows(rows_NE, cells.order_N, cells.starts_U1)


class Rule(NamedTuple):
    """An update rule of optimizers.py, and its constants."""

    optimizer: OptimizerName
    l2: float = 0.0
    beta_1: float = 0.0
    beta_2: float = 0.0
    epsilon: float = 0.0
    momentum: float = 0.0
    ftrl_l1: float = 0.0
    ftrl_l2: float = 0.0


def update_rows(rule: Rule, table: Any, ids_U: Any, gradient_UE: Any, rate: Any) -> Any:
    """One step of an optimizer on the rows of distinct ids, in place; the operation, in a graph.

    Args:
        table: a variable whose rows are the parameters, then their slots: [V, E * (1 + slots)].
        rate: float32 scalar; of Adam, with its bias correction in it.
    """
    return load().ctrflow_update_rows(table.handle, ids_U, gradient_UE, rate, **rule._asdict())


def update_dense(rule: Rule, variables: Sequence[Any], slots: Sequence[Sequence[Any]], gradients: Sequence[Any], rate: Any) -> None:
    """One step of an optimizer on whole variables, in place.

    Args:
        slots: the first slots of all variables, then the second slots of all.
    """
    slot_handles = [slot.handle for same in slots for slot in same]
    load().ctrflow_update_dense([v.handle for v in variables], slot_handles, list(gradients), rate, **rule._asdict())
