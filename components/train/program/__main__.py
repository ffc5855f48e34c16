"""One training process of this host. `launch.py` starts it with its role in CTRFLOW_ROLE; nothing else reads the environment."""

import ctypes
import json
import logging
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from components.errors import WorkflowError
from components.train.program.config import TrainConfig
from components.train.program.container import PEER_LOST, Container, read_config, read_container
from components.train.program.resources import Sampler, usable_cpus

log = logging.getLogger("ctrflow")

PR_SET_PDEATHSIG = 1
# What TensorFlow and Horovod raise in a process whose peer died.
PEER_ERRORS = ("HorovodInternalError", "UnavailableError", "AbortedError", "CancelledError")


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


def write_json(path: Path, document: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def train(container: Container, config: TrainConfig, started: float) -> None:
    """Be rank 0, or one of the other Horovod ranks."""
    import tensorflow as tf

    from components.train.program.checkpoint import MODEL_CARD, parameter_checksum, write_model
    from components.train.program.fit import Recorder, fit
    from components.train.program.input import batches, divide, explain_damage, find_source

    source, manifest = find_source(container.data, config)
    strategy: Any
    if config.strategy == "parameter_server":
        from components.train.program.parameter_server import ParameterServers

        strategy = ParameterServers(config, source)
    elif config.strategy == "horovod":
        import horovod.tensorflow as hvd

        from components.train.program.horovod_ring import HorovodRing

        hvd.init()
        strategy = HorovodRing(config, source.field_size, source.feature_size)
    else:
        from components.train.program.single import Single

        strategy = Single(config, source.field_size, source.feature_size)
    division = divide(source, config, strategy.rank, strategy.size)
    if division.rank == 0:
        log.info(
            "%s: %d workers, %d steps of %d examples each; %d of %d rows of an epoch are left out",
            config.strategy, division.size, division.steps, division.batch_size, division.left_out, source.examples,
        )  # fmt: skip
    recorder = Recorder(config, division, started)
    with Sampler() as sampler:
        try:
            if config.strategy == "parameter_server":
                strategy.fit(division, recorder)
            else:
                fit(strategy, batches(source, division, config.seed), config, recorder, division.steps)
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
            raise explain_damage(container.data, manifest, error) from error

    cpus = usable_cpus()
    measured = {
        "strategy": config.strategy,
        "world_size": division.size,
        "workers_per_host": config.workers_per_host,
        "hosts": len(container.hosts),
        "batch_size": division.batch_size,
        "steps": division.steps,
        "examples_left_out": division.left_out,
        **recorder.summary(),
        "cpu_percent_per_core": sampler.cpu_percent_per_core(),
        "rss_bytes": sampler.rss_bytes,
        "usable_cpus": cpus.count,
        "usable_cpus_source": cpus.source,
        "probe": config.probe,
    }
    if config.probe == "none":
        table, dense = strategy.parameters()
        agreed = strategy.agree(parameter_checksum(table, dense))
        if not agreed:
            raise WorkflowError("the ranks hold different parameters at the end; this model must not be used, report it")
        if division.rank == 0:
            trained = {
                "strategy": config.strategy,
                "world_size": division.size,
                "step": division.steps,
                "examples": measured["examples"],
                "ranks_agreed": agreed,
                "metrics": {"final_loss": measured["final_loss"]},
            }
            card = write_model(container.model, config, manifest, table, dense, trained)
            write_json(container.model / MODEL_CARD, card)
    if division.rank == 0:
        write_json(container.output_data / "training.json", measured)
        log.info("trained %d examples, %.0f examples/s", measured["examples"], measured["examples_per_s"])


def describe(error: BaseException, role: str) -> tuple[str, int]:
    """What to say about a failed process, and its exit code."""
    if isinstance(error, WorkflowError):
        return str(error), 1
    code = PEER_LOST if type(error).__name__ in PEER_ERRORS else 1
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # TensorFlow says "in user code:" first and what happened last.
    message = (lines[-1] if lines[0].endswith(":") else lines[0]) if lines else ""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{role}: {type(error).__name__}: {message} ({Path(where.filename).name}, line {where.lineno})", code


def main() -> int:
    """Run this process's role; the reason of a failure goes to the file that the launcher named."""
    started = time.monotonic()
    die_with_parent()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    role = os.environ["CTRFLOW_ROLE"]
    try:
        container = read_container()
        config = read_config(container)
        set_threads(config, usable_cpus().count)
        kind, _, index = role.rpartition(" ")
        if kind in ("worker", "ps"):
            from components.train.program.parameter_server import serve

            serve(kind, int(index))
        else:
            train(container, config, started)
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
