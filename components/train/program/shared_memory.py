"""Memory that the processes of one host share (shared_memory.cc, exchange.py). Imports no TensorFlow: the launcher makes it.

It is an anonymous file that processes inherit: it has no name, so nothing of it is left whatever kills whom, and it is not
/dev/shm, which containers make small.
"""

import os
from collections.abc import Mapping

# Says which inherited file descriptor it is.
SHARED_MEMORY = "CTRFLOW_SHARED_MEMORY"
# As in shared_memory.cc.
CHANNELS = 16
# Address space, of which only what is written becomes memory: slots of the ranks, and the largest table.
BYTES_A_RANK, TABLE_BYTES = 2 * CHANNELS * 2**32, 2**42


def make_memory(ranks: int) -> int:
    """The file descriptor of memory for so many ranks; it must be passed on to the processes that use it."""
    file = os.memfd_create("ctrflow-exchange")
    os.ftruncate(file, ranks * BYTES_A_RANK + TABLE_BYTES)
    return file


def inherited_memory(environment: Mapping[str, str] = os.environ) -> int | None:
    """The file descriptor of what this host's processes share, None when the launcher made nothing to share."""
    file = environment.get(SHARED_MEMORY)
    return None if file is None else int(file)
