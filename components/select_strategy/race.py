"""The race: short real jobs of the best of each kind, fewer of those that clearly lose. And whether they learn as well.

Measurement beats prediction. A challenger whose interval ends below the leader's is dropped after one job; those that cannot be
told apart run again, up to MOST_HEATS jobs each, and their jobs count together.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from components.profile import NOISE, Probe
from components.select_strategy.cost_model import Candidate

# Jobs of one candidate: a third tells less than its start-up costs.
MOST_HEATS = 2
# A loss is clearly worse when it differs by so many standard errors of the difference, and by so much of itself.
WORSE_ERRORS, WORSE_SHARE = 3.0, 0.01
# Points of a loss curve below which nothing can be said.
_FEWEST_LOSSES = 8


@dataclass(frozen=True, kw_only=True)
class Heat:
    """One job: its probe and its loss curve, of (examples, loss)."""

    probe: Probe
    losses: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A candidate and its jobs. worse: how its loss compares, where that is clearly worse than the single process's; else empty."""

    candidate: Candidate
    heats: tuple[Heat, ...]
    worse: str = ""

    @property
    def rate(self) -> float:
        return sum(heat.probe.examples_per_s for heat in self.heats) / len(self.heats)

    @property
    def interval(self) -> tuple[float, float]:
        """95 % bounds of the rate; within NOISE of it where the jobs have none, and no narrower than the jobs lie apart."""
        rates = [heat.probe.examples_per_s for heat in self.heats]
        half = max(self._half(heat.probe) for heat in self.heats) / math.sqrt(len(self.heats))
        half = max(half, (max(rates) - min(rates)) / 2)
        return self.rate - half, self.rate + half

    @staticmethod
    def _half(probe: Probe) -> float:
        if probe.rate_low is None or probe.rate_high is None:
            return NOISE * probe.examples_per_s
        return (probe.rate_high - probe.rate_low) / 2

    @property
    def losses(self) -> tuple[tuple[float, float], ...]:
        return self.heats[0].losses


def heat_of(probe: Probe, losses: Sequence[tuple[int, float]]) -> Heat:
    """A job with its losses by examples. A step is one of all workers; of parameter servers it is one worker's.

    Args:
        losses: (steps, loss), as training.json has them.
    """
    workers = 1 if probe.strategy == "parameter_server" else probe.hosts * probe.workers_per_host
    each = probe.batch_size * workers
    return Heat(probe=probe, losses=tuple((step * each, loss) for step, loss in losses))


def race(candidates: Sequence[Candidate], run: Callable[[Candidate, int], Heat]) -> tuple[Runner, ...]:
    """Run the single process and its challengers until who leads is clear.

    Args:
        candidates: the single process first.
        run: runs one job of a candidate; the number tells its jobs apart.
    """
    runners = [Runner(candidate=one, heats=(run(one, 0),)) for one in candidates]
    for number in range(1, MOST_HEATS):
        close = _close(runners)
        if len(close) < 2:
            break
        for index in close:
            candidate, heats = runners[index].candidate, runners[index].heats
            runners[index] = Runner(candidate=candidate, heats=(*heats, run(candidate, number)))
    single = runners[0]
    return tuple(
        Runner(candidate=one.candidate, heats=one.heats, worse="" if one is single else clearly_worse(one.losses, single.losses))
        for one in runners
    )


def _close(runners: Sequence[Runner]) -> list[int]:
    """Who may still lead: all whose interval reaches the leader's. A leading challenger must also beat the single process again.

    On a shared machine a minute in which something else ran looks like a slow candidate, so the single process runs beside it.
    """
    leader = max(runners, key=lambda one: one.rate)
    close = [index for index, one in enumerate(runners) if one.interval[1] >= leader.interval[0]]
    if leader is runners[0]:
        # Nobody replaces the single process without a clear win, so those who are not above it need not run again.
        return [index for index in close if runners[index].interval[1] > leader.rate * (1 + NOISE)] if len(close) > 1 else []
    return sorted({0, *close})


def clearly_worse(mine: Sequence[tuple[float, float]], reference: Sequence[tuple[float, float]]) -> str:
    """Says so when a loss is clearly worse after the same number of examples, empty when not or when too little is known.

    The second half of what both have seen is compared: means, by the standard error of their difference (Welch 1947).
    """
    if not mine or not reference:
        return ""
    seen = min(mine[-1][0], reference[-1][0])
    parts = [[loss for examples, loss in curve if seen / 2 <= examples <= seen] for curve in (mine, reference)]
    if min(map(len, parts)) < _FEWEST_LOSSES:
        return ""
    (mean, error), (other, other_error) = (_mean_and_error(part) for part in parts)
    if mean - other <= max(WORSE_ERRORS * math.hypot(error, other_error), WORSE_SHARE * other):
        return ""
    return f"loss {mean:.4f} after {seen:,.0f} examples, one process has {other:.4f}: clearly worse, so it is not chosen"


def _mean_and_error(losses: Sequence[float]) -> tuple[float, float]:
    mean = sum(losses) / len(losses)
    return mean, math.sqrt(sum((loss - mean) ** 2 for loss in losses) / (len(losses) - 1) / len(losses))
