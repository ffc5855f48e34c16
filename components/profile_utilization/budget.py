"""What probing may cost, what it will cost and what it has cost. Pure: seconds of jobs in, decisions out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from components.profile import Probe

# Seconds of the step on a machine of one's own; seconds that are paid, of all hosts together, on SageMaker.
LOCAL_S, PAID_S = 180.0, 900.0
# The searches may not use up what several workers need: beyond a minute, half of the budget is theirs.
SEARCH_ALONE_S, SEARCH_SHARE = 60.0, 0.5


@dataclass(kw_only=True)
class Budget:
    """Grows with every job. `limit_s` is of wall-clock time, or, where jobs are `paid`, of paid seconds times hosts."""

    limit_s: float
    probe_s: float
    paid: bool
    spent_s: float = 0.0
    instance_s: float = 0.0
    _first_s: list[float] = field(default_factory=list)

    @property
    def reserve_s(self) -> float:
        """What searches leave for probes of several workers."""
        return max(self.limit_s - SEARCH_ALONE_S, 0.0) * SEARCH_SHARE

    def expected_s(self, seconds: float, hosts: int = 1) -> float:
        """What one more job that measures so many seconds will take: as long as the longest start-up so far."""
        start_up = max(self._first_s, default=0.0) - self.probe_s
        return max(start_up + seconds, 0.0) * (hosts if self.paid else 1)

    def fits(self, seconds: float, hosts: int = 1, keep_s: float = 0.0) -> bool:
        """Whether such a job still ends within the limit, less what must be left."""
        return self.spent_s + self.expected_s(seconds, hosts) <= self.limit_s - keep_s

    def spend(self, probes: Sequence[Probe]) -> None:
        """Account for what one job measured."""
        billable_s, hosts = sum(probe.billable_s for probe in probes), probes[0].hosts
        self.instance_s += billable_s * hosts
        self.spent_s += billable_s * hosts if self.paid else sum(probe.job_s for probe in probes)
        self._first_s.append(probes[0].billable_s if self.paid else probes[0].job_s)


def usd(seconds: float, usd_per_hour: float | None) -> float | None:
    """The price of so many seconds of an instance."""
    return None if usd_per_hour is None else seconds * usd_per_hour / 3600


def cost(seconds: float, price: float | None) -> str:
    """For a person: 180 s, USD 0.04."""
    return f"{seconds:.0f} s" + ("" if price is None else f", USD {price:.2f}")
