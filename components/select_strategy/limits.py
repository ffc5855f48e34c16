"""What a person allows and wants: the objective, and what no plan may go beyond."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from components.documents import settings_of_text
from components.learning import require

Objective = Literal["time", "cost", "cost_within_deadline"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
# No more is asked of prediction, however much is allowed.
LARGEST_CLUSTER = 64


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a choice; the defaults allow what one machine of the profiled type can do, and two hosts of it.

    Attributes:
        objective: the shortest epoch, the cheapest, or the cheapest of those that end before the deadline.
        deadline_s: seconds that all epochs may take, start-up included; only for cost_within_deadline, which needs it.
        families: families of instance types, such as c7i, besides the type that was profiled; none = that type alone.
        most_hosts: 0 leaves it to the ladder: 2 on a machine without a price, 8 elsewhere.
        most_usd_per_hour: for all hosts together; 0 = no limit.
        unavailable: instance types of which there is no capacity, or no quota.
        spot: use interruptible capacity. spot_price: what it costs, as a share of the price on demand.
    """

    objective: Objective = "time"
    deadline_s: float = 0.0
    families: tuple[str, ...] = ()
    most_hosts: int = 0
    most_usd_per_hour: float = 0.0
    unavailable: tuple[str, ...] = ()
    spot: bool = False
    spot_price: float = 0.4

    def __post_init__(self) -> None:
        require(self.objective in OBJECTIVES, "objective", self.objective, f"choose one of {', '.join(OBJECTIVES)}")
        for name in ("deadline_s", "most_usd_per_hour"):
            require(0 <= getattr(self, name) < math.inf, name, getattr(self, name), "must not be negative")
        if self.objective == "cost_within_deadline":
            require(self.deadline_s > 0, "deadline_s", self.deadline_s, "objective cost_within_deadline needs one above 0 seconds")
        else:
            require(self.deadline_s == 0, "deadline_s", self.deadline_s, "goes with objective cost_within_deadline alone")
        require(0 <= self.most_hosts <= LARGEST_CLUSTER, "most_hosts", self.most_hosts, f"must be in 0..{LARGEST_CLUSTER}")
        require(0 < self.spot_price <= 1, "spot_price", self.spot_price, "must be above 0 and at most 1, a share of the price")

    def hosts(self, priced: bool) -> int:
        """How many hosts a plan may have, on a machine with a price or without."""
        return self.most_hosts or (8 if priced else 2)


def limits_of(text: str) -> Limits:
    """Limits of a JSON object of their fields; what is left out has its default.

    Raises:
        InvalidConfig: not JSON, unknown keys, values of another type, or impossible ones.
    """
    return settings_of_text(Limits, text, "limits", '{"most_hosts": 4}')
