"""The training loop, and what is measured while it runs."""

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from components.errors import WorkflowError
from components.train.program.config import TrainConfig
from components.train.program.divergence import Rows, likely_cause
from components.train.program.division import Division, Share
from components.train.program.layout import Layout
from components.train.program.loss_scale import LossScale
from components.train.program.read_ahead import ReadAhead

log = logging.getLogger(__name__)

# Steps that tracing, allocation and filling the prefetch buffer distort; they are left out of rates and percentiles.
WARMUP_STEPS = 5
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


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step as this process saw it.

    `rows` counts what all workers that took part trained on; times are seconds, `ended` is monotonic. `loss` is None in a probe
    that only reads.
    """

    worker: int
    rows: int
    duration_s: float
    wait_s: float
    communication_s: float
    ended: float
    loss: float | None


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
            log.info("step %d of %d%s, %.0f examples/s", done, self._division.steps, loss, self.examples_per_s())

    def over(self) -> bool:
        """Whether a probe has used its time; the clock starts when warm-up ends."""
        if not self._config.max_seconds or len(self.steps) <= WARMUP_STEPS:
            return False
        return time.monotonic() - self.steps[WARMUP_STEPS].ended > self._config.max_seconds

    def _measured(self) -> tuple[float, list[Step]]:
        """When the warm-up ended, and the steps after it; a very short training is measured from its start."""
        skip = WARMUP_STEPS if len(self.steps) > 2 * WARMUP_STEPS else 0
        return (self.steps[skip - 1].ended if skip else self._started), self.steps[skip:]

    def examples_per_s(self) -> float:
        """Rows of all workers a second, without the warm-up."""
        begin, steps = self._measured()
        return sum(step.rows for step in steps) / max(steps[-1].ended - begin, 1e-9)

    def summary(self) -> dict[str, Any]:
        """The measured part of training.json."""
        steps = self._measured()[1]
        durations = [step.duration_s for step in steps]
        wait = sum(step.wait_s for step in steps) / sum(durations)
        communication = sum(step.communication_s for step in steps) / sum(durations)
        losses = [(number, step.loss) for number, step in enumerate(self.steps, start=1) if step.loss is not None]
        stride = max(-(-len(losses) // LOSSES_KEPT), 1)
        tail = [loss for _, loss in losses[-20:]]
        examples, workers = sum(step.rows for step in self.steps), Counter(step.worker for step in self.steps)
        due = (self._division.steps - self._begun) * self._division.batch_size * self._division.size
        return {
            "examples": examples,
            "stopped_early": examples < due,
            "examples_per_s": self.examples_per_s(),
            "startup_s": self.steps[0].ended - self._process_started,
            "train_s": self.steps[-1].ended - self._started,
            "step_time_s": {f"p{q}": float(np.percentile(durations, q)) for q in (50, 90, 99)},
            "input_wait_share": wait,
            "compute_share": 1 - wait - communication,
            "communication_share": communication,
            "final_loss": sum(tail) / len(tail) if tail else None,
            "losses": [[number, loss] for number, loss in losses[::stride]],
            "ranks": [{"rank": worker, "steps": count} for worker, count in sorted(workers.items())],
        }


def fit(
    strategy: Strategy,
    batches: Iterable[Any],
    config: TrainConfig,
    recorder: Recorder,
    *,
    begun: int,
    steps: int,
    save: Callable[[int], None],
) -> None:
    """Run the steps of one rank after the first `begun`, or until a time-limited probe is over.

    `probe` input only reads; compute repeats the first batch; both is training as it is. `save` is called where a checkpoint is
    due.
    """
    iterator = ReadAhead(batches)
    cached = next(iterator) if config.probe == "compute" else None
    seen: tuple[Rows, ...] = ()
    for number in range(begun + 1, steps + 1):
        start = time.monotonic()
        batch = cached if cached is not None else next(iterator)
        read, before = time.monotonic(), strategy.communication_s
        loss = None if config.probe == "input" else strategy.train(batch)
        end = time.monotonic()
        seen = (*seen[-1:], batch)
        recorder.add(
            Step(
                worker=strategy.rank,
                rows=config.batch_size * strategy.size,
                duration_s=end - start,
                wait_s=read - start,
                communication_s=strategy.communication_s - before,
                ended=end,
                loss=loss,
            ),
            seen,
        )
        if config.checkpoint_steps and number % config.checkpoint_steps == 0 and number < steps:
            save(number)
        if config.max_seconds and number % AGREE_EVERY == 0 and strategy.stop_together(recorder.over()):
            return
