"""Whether all ranks hold the same parameters, optimizer slots and step: compared by a checksum of their bits."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from components.errors import WorkflowError

# Rows of a variable that are read at a time: a table may be too large to be copied whole.
CHUNK_ROWS = 65_536


def state_checksum(variables: Iterable[Any]) -> str:
    """Of variables in this order, equal only when every bit is.

    TensorFlow's FarmHash of every row, then SHA-256 of those: more than twice as fast as SHA-256 of everything
    (tests/benchmarks/README.md). It guards against what goes wrong, not against people who want to deceive.
    """
    digest = hashlib.sha256()
    for variable in variables:
        for rows in _rows(variable):
            digest.update(tf.raw_ops.Fingerprint(data=rows, method="farmhash64").numpy().tobytes())
    return digest.hexdigest()


def _rows(variable: Any) -> Iterable[Any]:
    """All of a variable, as matrices: a large one in parts, a scalar or vector as one row."""
    if len(variable.shape) < 2:
        yield tf.reshape(variable, [1, -1])
        return
    for start in range(0, variable.shape[0], CHUNK_ROWS):
        yield variable.sparse_read(tf.range(start, min(start + CHUNK_ROWS, variable.shape[0])))


def check_agreement(checksums: Mapping[str, str], step: int) -> None:
    """Refuse to go on with copies that differ.

    Args:
        checksums: by who holds the copy, such as "rank 0"; one or none where there is one copy.
    Raises:
        WorkflowError: naming the step and those that differ from most, or from the first where there is no majority.
    """
    if not checksums:
        return
    common = Counter(checksums.values()).most_common(1)[0][0]
    holders = [name for name, checksum in checksums.items() if checksum == common]
    others = [name for name, checksum in checksums.items() if checksum != common]
    if others:
        raise WorkflowError(
            f"step {step}: the parameters, optimizer slots or step count of {', '.join(others)} differ from those of "
            f"{', '.join(holders)}; this training must not be used, report it"
        )
