"""Every machine, number of hosts and strategy that the limits allow, the best first. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from components.plan import Strategy
from components.select_strategy.limits import Limits
from components.select_strategy.machines import Host
from components.select_strategy.options import Option, Situation, option


def weigh(situation: Situation, hosts: Sequence[Host]) -> tuple[Option, ...]:
    """All options on these machines, the best of each strategy for a kind and number of hosts, best of all first."""
    best: dict[tuple[str, int, Strategy], Option] = {}
    for host in hosts:
        for made in _options(situation, host):
            key = (host.name, made.hosts, made.strategy)
            if key not in best or _fewer_worries(made) < _fewer_worries(best[key]):
                best[key] = made
    return in_order(tuple(best.values()), situation.limits)


def _fewer_worries(made: Option) -> tuple[bool, float]:
    return bool(made.refused), -made.estimate.examples_per_s


def _options(situation: Situation, host: Host) -> Iterator[Option]:
    counts = powers_of_two(situation.limits.hosts(host.usd_per_hour is not None))
    for hosts in counts:
        if host.gpus:
            if hosts == 1 and host.gpus == 1:
                yield option(situation, "tower", host, 1, 1)
            elif hosts * host.gpus > 1:
                yield option(situation, "horovod", host, hosts, host.gpus)
            continue
        if hosts == 1:
            for strategy in ("single", "tower"):
                if strategy in situation.scalings:
                    yield option(situation, strategy, host, 1, 1)
        for workers_per_host in powers_of_two(max(2, int(host.cores))):
            if hosts * workers_per_host > 1:
                yield option(situation, "horovod", host, hosts, workers_per_host)
        if hosts > 1:
            yield option(situation, "parameter_server", host, hosts, 1)


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ... up to `most`."""
    return [2**exponent for exponent in range(most.bit_length())]


def in_order(options: Sequence[Option], limits: Limits) -> tuple[Option, ...]:
    """Best first: those that can be chosen, by the objective. Those that no other beats in both time and cost are the frontier."""
    alive = [made for made in options if not made.refused]
    marked = [replace(made, frontier=not made.refused and not any(_beats(rival, made) for rival in alive)) for made in options]
    return tuple(sorted(marked, key=lambda made: (bool(made.refused), *_objective(made, limits), made.hosts, made.host.vcpus)))


def _beats(rival: Option, made: Option) -> bool:
    mine, theirs = (made.epoch_s, made.epoch_usd or 0.0), (rival.epoch_s, rival.epoch_usd or 0.0)
    return theirs != mine and theirs[0] <= mine[0] and theirs[1] <= mine[1]


def _objective(made: Option, limits: Limits) -> tuple[float, ...]:
    """What is to be small, first things first. A deadline must be kept at the low bound of the rate, else the least late comes."""
    cost = made.epoch_usd if made.epoch_usd is not None else math.inf
    if limits.objective == "time":
        return made.epoch_s, cost
    if limits.objective == "cost":
        return cost, made.epoch_s
    return (0.0, cost) if meets_deadline(made, limits) else (1.0, made.slow_training_s)


def meets_deadline(made: Option, limits: Limits) -> bool:
    """Whether all epochs end in time even at the low bound of the rate."""
    return made.slow_training_s <= limits.deadline_s
