"""The climb: which options the ladder admits, and which of those is taken. Pure.

Article, item 14: mend the input; fill this machine; then a larger one; then several. Larger or further machines are not admitted
before the rung below is full, however well they are predicted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from components.plan import Rung
from components.profile import FULL
from components.select_strategy.limits import Limits
from components.select_strategy.options import Option
from components.select_strategy.ranking import in_order, meets_deadline

# What a machine that is predicted to be this busy is called: predictions of CPU use are no better than that.
NEARLY_FULL = 0.8


@dataclass(frozen=True, kw_only=True)
class Footing:
    """What the climb stands on: does input keep up, how busy is this machine, and the option that was measured best on it."""

    input_keeps_up: bool
    utilization: float
    here: Option


@dataclass(frozen=True, kw_only=True)
class Climb:
    """The option that was taken, what admitted or held back others, and the types that could stand in for it."""

    chosen: Option
    rungs: tuple[Rung, ...]
    alternatives: tuple[str, ...]


def climb(options: Sequence[Option], footing: Footing, limits: Limits) -> Climb:
    """Take the best option that the ladder admits.

    Args:
        options: in the order of `in_order`, what was measured here among them.
    """
    here = footing.here
    free = [made for made in options if not made.refused]
    this = [made for made in free if _on_this_rung(made, here)]
    larger = [made for made in free if made.hosts == 1 and made not in this]
    several = [made for made in free if made.hosts > 1 and made not in this]
    full_here = footing.input_keeps_up and footing.utilization >= FULL
    rungs, admitted = [_larger_rung(footing, larger)], this
    if full_here:
        admitted = admitted + larger
        fastest = min(this + larger, key=lambda made: made.epoch_s, default=here)
        full_there = fastest.estimate.busy >= NEARLY_FULL or not larger
        rungs.append(_several_rung(fastest, several, full_there))
        if full_there:
            admitted = admitted + several
    taken = _best(in_order(admitted, limits), here, limits)
    rungs.append(_machines_rung(taken, here, limits))
    priced = [made for made in admitted if made.host.usd_per_hour is not None and made.strategy == taken.strategy]
    spare = [made.host.name for made in in_order(priced, limits) if (made.hosts > 1) == (taken.hosts > 1)]
    others = tuple(dict.fromkeys(name for name in spare if name != taken.host.name))[:4]
    return Climb(chosen=taken, rungs=tuple(rungs), alternatives=others if taken.host.usd_per_hour is not None else ())


def _on_this_rung(made: Option, here: Option) -> bool:
    """One host that is no larger than this machine; or anything that was measured on this very machine."""
    return (made.hosts == 1 and made.host.vcpus <= here.host.vcpus) or (made.host.name == here.host.name and made.raced)


def _best(admitted: Sequence[Option], here: Option, limits: Limits) -> Option:
    """The first that was not measured and beats what was also at the low bound of its rate; else the race's winner.

    Whoever lost the race, or won by no more than noise, stays behind whatever its rate is.
    """
    for made in admitted:
        if made == here or (not made.raced and _surely_better(made, here, limits)):
            return made
    return here


def _surely_better(made: Option, here: Option, limits: Limits) -> bool:
    if limits.objective == "time":
        return made.slow_epoch_s < here.epoch_s
    if limits.objective == "cost_within_deadline" and meets_deadline(made, limits) != meets_deadline(here, limits):
        return meets_deadline(made, limits)
    if made.epoch_usd is None or here.epoch_usd is None:
        return False
    return made.epoch_usd * made.slow_epoch_s / made.epoch_s < here.epoch_usd


def _larger_rung(footing: Footing, larger: Sequence[Option]) -> Rung:
    full = footing.input_keeps_up and footing.utilization >= FULL
    if not footing.input_keeps_up:
        decision = "mend the input pipeline first: a larger machine would wait for it as well"
    elif not full:
        decision = "fill this machine before paying for more"
    elif larger:
        decision = "this machine is full: larger ones are admitted"
    else:
        decision = "this machine is full, but no larger one is allowed or known; name families of instance types with --families"
    return Rung(
        name="scale up",
        decision=decision,
        measured=f"{footing.utilization:.0%} of the CPUs busy, {FULL:.0%} is full",
        beat="",
        passed=full and bool(larger),
    )


def _several_rung(fastest: Option, several: Sequence[Option], full_there: bool) -> Rung:
    return Rung(
        name="scale out",
        decision="several hosts are admitted" if full_there and several else "one host is enough, or all that is allowed",
        measured=f"{fastest}, the fastest single host: {fastest.estimate.busy:.0%} busy by prediction, {NEARLY_FULL:.0%} is full",
        beat="",
        passed=full_there and bool(several),
    )


def _machines_rung(taken: Option, here: Option, limits: Limits) -> Rung:
    if taken == here:
        why = "no other machine that is admitted is better beyond doubt"
    else:
        why = f"better also at the low bound of its rate; it was not measured: {taken.host.basis}"
    late = limits.objective == "cost_within_deadline" and not meets_deadline(taken, limits)
    warning = f"; nothing admitted is sure to meet the deadline of {limits.deadline_s:g} s" if late else ""
    return Rung(
        name="machine",
        decision=f"{taken}: {why}{warning}",
        measured=f"{_told(taken)} instead of {_told(here)} here" if taken != here else _told(taken),
        beat="" if taken == here else str(here),
        passed=taken != here,
    )


def _told(made: Option) -> str:
    cost = "" if made.epoch_usd is None else f", {made.epoch_usd:.4f} USD"
    low, high = made.estimate.low, made.estimate.high
    return f"{made.estimate.examples_per_s:,.0f} examples/s ({low:,.0f} to {high:,.0f}), an epoch in {made.epoch_s:,.1f} s{cost}"
