"""One training process of this host.

`launch.py` starts it; its role and its files are in CTRFLOW_* variables, and nothing else reads the environment.
"""

import ctypes
import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from components.errors import WorkflowError
from components.resources import usable_cpus
from components.train.program.config import TrainConfig
from components.train.program.container import PEER_LOST, PIPE_DEADLINE_S, positive_number, read_config, read_container

log = logging.getLogger("ctrflow")

PR_SET_PDEATHSIG = 1
HOROVOD_SHUT_DOWN = "Horovod has been shut down"
# What TensorFlow and Horovod raise in a process whose peer died. In a graph every failure of an exchange is an UnknownError, whose
# text is that Horovod was shut down, that of a socket, or none: it depends on which thread notices first.
PEER_ERRORS = ("HorovodInternalError", "UnavailableError", "AbortedError", "CancelledError", "UnknownError")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its launcher dies, even by kill -9."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(os.environ["CTRFLOW_LAUNCHER_PID"]):
        sys.exit("the launcher is gone")


def set_threads(config: TrainConfig, usable: int) -> None:
    """Before TensorFlow makes its thread pools, whose own defaults know no CPU quota. OMP and KMP are set by the launcher."""
    import tensorflow as tf

    share = max(usable // config.workers_per_host, 1)
    tf.config.threading.set_intra_op_parallelism_threads(config.intra_op_threads or share)
    tf.config.threading.set_inter_op_parallelism_threads(config.inter_op_threads or share)


def describe(error: BaseException, role: str) -> tuple[str, int]:
    """What to say about a failed process, and its exit code."""
    if isinstance(error, WorkflowError):
        return str(error), 1
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    code = PEER_LOST if type(error).__name__ in PEER_ERRORS else 1
    # TensorFlow says "in user code:" or "Detected at node ..." first and what happened last.
    message = (lines[-1] if lines[0].endswith(":") else lines[0]) if lines else ""
    if any(HOROVOD_SHUT_DOWN in line for line in lines):
        message = HOROVOD_SHUT_DOWN
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{role}: {type(error).__name__}: {message} ({Path(where.filename).name}, line {where.lineno})", code


def main() -> int:
    """Run this process's role; the reason of a failure goes to the file that the launcher named."""
    started = time.monotonic()
    die_with_parent()
    role = os.environ["CTRFLOW_ROLE"]
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {role}: %(message)s", stream=sys.stdout)
    try:
        container = read_container()
        config = read_config(container)
        set_threads(config, usable_cpus().count)
        kind, _, index = role.rpartition(" ")
        if kind in ("worker", "ps"):
            from components.train.program.parameter_server import serve

            serve(kind, int(index), container, config)
        else:
            from components.train.program.training import train

            deadline_s = positive_number(os.environ, "CTRFLOW_PIPE_DEADLINE_S", PIPE_DEADLINE_S)
            train(container, config, int(index), started, Path(os.environ["CTRFLOW_PROGRESS_FILE"]), deadline_s)
    except Exception as error:
        reason, code = describe(error, role)
        if not isinstance(error, WorkflowError):
            traceback.print_exc(file=sys.stdout)
        Path(os.environ["CTRFLOW_FAILURE_FILE"]).write_text(reason, encoding="utf-8")
        return code
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Horovod and gRPC threads can hang an interpreter that is shutting down after a peer died; everything is written by now.
    os._exit(code)
