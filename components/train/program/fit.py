"""The training loop, and what is measured while it runs."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.errors import WorkflowError
from components.train.program.config import ProbeName, TrainConfig
from components.train.program.divergence import Rows, likely_cause
from components.train.program.division import Division, Share
from components.train.program.layout import Layout
from components.train.program.loss_scale import LossScale
from components.train.program.throughput import Throughput, throughput

log = logging.getLogger(__name__)

# The first steps trace, allocate and fill buffers: a probe's clock starts after them. More may be found to be warm-up.
WARMUP_STEPS = 5
# How much of a training may be: its first epoch reads what later ones keep in memory, and is no warm-up. A probe only measures.
WARMUP_OF_TRAINING, WARMUP_OF_PROBE = 0.1, 0.5
# A narrow interval of fewer seconds may not have seen yet what happens once a block of rows, or once a second.
MEASURE_AT_LEAST_S, LOOK_EVERY_S = 1.0, 0.25
# Outlier: a step longer than the mean by so many standard deviations. Source: SageMaker Debugger's rule StepOutlier.
OUTLIER_SIGMAS = 3.0
LOG_EVERY_S = 5.0
TOUCH_EVERY_S = 1.0
LOSSES_KEPT = 200
# Ranks must leave a time-limited probe at the same step, and agreeing costs a message.
AGREE_EVERY = 5


class Strategy(Protocol):
    """Where rows live, how gradients are combined, and who is rank 0."""

    rank: int
    size: int
    communication_s: float
    loss_scale: LossScale | None

    def shares(self, layout: Layout) -> list[Share]: ...
    def train(self, batch: tuple[Any, Any, Any]) -> float: ...
    def stop_together(self, wish: bool) -> bool: ...
    def shapes(self) -> dict[str, tuple[int, ...]]: ...
    def state(self) -> dict[str, NDArray[Any]]: ...
    def resume(self, found: tuple[int, Mapping[str, NDArray[Any]]] | None) -> int: ...
    def parameters(self) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]: ...
    def checksums(self) -> dict[str, str]: ...
    def figures(self) -> dict[str, Any]: ...
    def each_rank(self, own: Any) -> list[Any]: ...
    def sent_bytes(self, rows: float) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step as this process saw it.

    `rows` counts what all workers that took part trained on; times are seconds, `ended` is monotonic. `loss` is None in a probe
    that only reads. `servers_s` is the part of communication in which parameter servers were asked for rows and weights;
    `distinct` how many rows of the table the worker's batch has, where it tells.
    """

    worker: int
    rows: int
    duration_s: float
    wait_s: float
    communication_s: float
    ended: float
    loss: float | None
    servers_s: float | None = None
    distinct: int | None = None


class Recorder:
    """Collects steps, from any thread; refuses a loss that is not finite; touches the file `progress` while steps go on."""

    def __init__(
        self,
        config: TrainConfig,
        division: Division,
        begun: int,
        started: float,
        progress: Path,
        loss_scale: LossScale | None = None,
    ) -> None:
        self._config, self._loss_scale = config, loss_scale
        self._division, self._begun = division, begun
        self._process_started = started
        self._started = time.monotonic()
        self._logged = self._started
        self._progress, self._touched = progress, self._started
        progress.touch()
        self._lock = threading.Lock()
        self._looked = 0.0
        self.steps: list[Step] = []

    def add(self, step: Step, batches: Sequence[Rows] = ()) -> None:
        """Record a step.

        Args:
            batches: of this step and the one before, where this process sees them.
        Raises:
            WorkflowError: the loss is NaN or infinite, or gradients are whatever the loss is scaled with; the message says what
                most likely made them so.
        """
        with self._lock:
            self.steps.append(step)
            count = len(self.steps)
            if step.ended - self._touched >= TOUCH_EVERY_S:
                self._touched = step.ended
                self._progress.touch()
            quiet = step.ended - self._logged < LOG_EVERY_S
            if not quiet:
                self._logged = step.ended
        if step.loss is not None:
            spent = self._loss_scale is not None and self._loss_scale.spent()
            if spent or not math.isfinite(step.loss):
                what = "gradients are not finite even with a loss scale of 1" if spent else f"the loss is {step.loss}"
                cause = likely_cause(self._config, batches, float16=self._loss_scale is not None)
                raise WorkflowError(f"step {count}: {what}; training diverged: {cause}")
        if not quiet and self._division.rank == 0:
            loss = "" if step.loss is None else f", loss {step.loss:.5f}"
            done = self._begun + sum(each.rows for each in self.steps) // (self._division.batch_size * self._division.size)
            log.info("step %d of %d%s, %.0f examples/s", done, self._division.steps, loss, self._rate_so_far())

    def over(self) -> bool:
        """Whether a probe has used its time, whose clock starts after the first steps, or knows its rate well enough."""
        if not self._config.max_seconds or len(self.steps) <= WARMUP_STEPS:
            return False
        now = time.monotonic()
        spent = now - self.steps[WARMUP_STEPS].ended
        if spent > self._config.max_seconds:
            return True
        if not self._config.probe_precision or spent < MEASURE_AT_LEAST_S or now - self._looked < LOOK_EVERY_S:
            return False
        self._looked = now
        found, _ = self._measured()
        return found.steady and found.half_width <= self._config.probe_precision

    def _measured(self) -> tuple[Throughput, list[Step]]:
        """The rate of all workers, and the steps after the warm-up."""
        with self._lock:
            steps = sorted(self.steps, key=lambda step: step.ended)
        most = WARMUP_OF_TRAINING if self._config.probe == "none" else WARMUP_OF_PROBE
        found = throughput(self._started, [step.ended for step in steps], steps[0].rows, most)
        return found, steps[found.warmup_steps :]

    def _rate_so_far(self) -> float:
        """Rows of all workers a second, roughly, for the log."""
        skip = WARMUP_STEPS if len(self.steps) > 2 * WARMUP_STEPS else 0
        began = self.steps[skip - 1].ended if skip else self._started
        return sum(step.rows for step in self.steps[skip:]) / max(self.steps[-1].ended - began, 1e-9)

    def summary(self) -> tuple[float, dict[str, Any]]:
        """When the measured part began, monotonic, and what training.json says of it."""
        found, steps = self._measured()
        durations = np.array([step.duration_s for step in steps])

        def share(seconds: Callable[[Step], float]) -> float:
            return sum(map(seconds, steps)) / float(durations.sum())

        wait, communication = share(lambda step: step.wait_s), share(lambda step: step.communication_s)
        by_servers = any(step.servers_s is not None for step in steps)
        distinct = [step.distinct for step in steps if step.distinct is not None]
        losses = [(number, step.loss) for number, step in enumerate(self.steps, start=1) if step.loss is not None]
        stride = max(-(-len(losses) // LOSSES_KEPT), 1)
        tail = [loss for _, loss in losses[-20:]]
        examples = sum(step.rows for step in self.steps)
        due = (self._division.steps - self._begun) * self._division.batch_size * self._division.size
        return steps[0].ended - steps[0].duration_s, {
            "examples": examples,
            "stopped_early": examples < due,
            "examples_per_s": found.rate,
            "rate_low": found.low,
            "rate_high": found.high,
            "warmup_steps": found.warmup_steps,
            "warmup_ended": found.steady,
            "block_steps": found.block_steps,
            "block_s": list(found.block_s),
            "startup_s": self.steps[0].ended - self._process_started,
            "train_s": self.steps[-1].ended - self._started,
            "step_time_s": {f"p{q}": float(np.percentile(durations, q)) for q in (50, 90, 99)},
            "outlier_share": float(np.mean(durations > durations.mean() + OUTLIER_SIGMAS * durations.std())),
            "input_wait_share": wait,
            "compute_share": 1 - wait - communication,
            "communication_share": communication,
            "parameter_server_share": share(lambda step: step.servers_s or 0.0) if by_servers else None,
            "distinct_rows": sum(distinct) / len(distinct) if distinct else None,
            "final_loss": sum(tail) / len(tail) if tail else None,
            "losses": [[number, loss] for number, loss in losses[::stride]],
            "ranks": self._ranks(steps),
        }

    def _ranks(self, measured: Sequence[Step]) -> list[dict[str, Any]]:
        """Of every worker that this process sees: all its steps, and how it spent one that was measured."""
        found = []
        for worker in sorted({step.worker for step in self.steps}):
            own = [step for step in measured if step.worker == worker]
            count = max(len(own), 1)
            wait, communication = sum(step.wait_s for step in own), sum(step.communication_s for step in own)
            found.append(
                {
                    "rank": worker,
                    "steps": sum(step.worker == worker for step in self.steps),
                    "wait_s": wait / count,
                    "communication_s": communication / count,
                    "compute_s": (sum(step.duration_s for step in own) - wait - communication) / count,
                }
            )
        return found


def fit(
    strategy: Strategy,
    batches: Iterator[Any],
    config: TrainConfig,
    recorder: Recorder,
    *,
    probe: ProbeName,
    begun: int,
    steps: int,
    save: Callable[[int], None],
) -> None:
    """Run the steps of one rank after the first `begun`, or until a time-limited probe is over.

    Args:
        probe: input only reads; compute repeats the next batch; others are training as it is.
        save: is called where a checkpoint is due.
    """
    cached = next(batches) if probe == "compute" else None
    seen: tuple[Rows, ...] = ()
    distinct = None
    for number in range(begun + 1, steps + 1):
        start = time.monotonic()
        batch = cached if cached is not None else next(batches)
        read, before = time.monotonic(), strategy.communication_s
        loss = None if probe == "input" else strategy.train(batch)
        end = time.monotonic()
        seen = (*seen[-1:], batch)
        if distinct is None:  # of one batch, outside the time that is measured
            distinct = len(np.unique(batch[1]))
        recorder.add(
            Step(
                worker=strategy.rank,
                rows=config.batch_size * strategy.size,
                duration_s=end - start,
                wait_s=read - start,
                communication_s=strategy.communication_s - before,
                ended=end,
                loss=loss,
                distinct=distinct,
            ),
            seen,
        )
        if config.checkpoint_steps and number % config.checkpoint_steps == 0 and number < steps:
            save(number)
        if config.max_seconds and number % AGREE_EVERY == 0 and strategy.stop_together(recorder.over()):
            return
