"""From profile, race and catalogue to a choice among machines. Pure.

Nothing is weighed where the catalogue does not have this machine and no families are asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from components.instances import Instance, in_families
from components.manifest import Manifest
from components.plan import Plan, Strategy
from components.profile import INPUT_HEADROOM, Probe, Profile, fastest
from components.select_strategy.climb import Climb, Footing, climb
from components.select_strategy.ladder import Measured
from components.select_strategy.limits import Limits
from components.select_strategy.machines import Host, host_of, unpriced_host
from components.select_strategy.options import Option, Situation, option, timed
from components.select_strategy.ranking import in_order, weigh
from components.select_strategy.scaling import MEASURED_SD, Estimate, Point, Scaling, Setup, Z, fit
from components.select_strategy.work import Work, work_of

# Options that plan.json keeps besides the frontier.
KEPT = 20


def hosts_to_weigh(limits: Limits, catalogue: Sequence[Instance], here: Instance | None) -> tuple[Instance, ...]:
    """Types that may be chosen: the profiled one and those of the families, but none that is retired or unavailable.

    Raises:
        InvalidConfig: an unknown family.
    """
    wanted = in_families(catalogue, limits.families) if limits.families else ()
    named = dict.fromkeys((*((here,) if here else ()), *wanted))
    return tuple(one for one in named if not one.retired and one.name not in limits.unavailable)


def points(probes: Sequence[Probe], here: Host) -> tuple[Point, ...]:
    """Measured steps of whole trainings, as the fit takes them."""
    return tuple(_point(probe, here) for probe in probes if probe.kind == "both")


def _point(probe: Probe, here: Host) -> Point:
    workers, priced = probe.hosts * probe.workers_per_host, here.usd_per_hour is not None
    share = here.cores / (probe.workers_per_host if priced else workers)
    setup = Setup(
        strategy=_strategy(probe),
        hosts=probe.hosts,
        workers_per_host=probe.workers_per_host,
        batch_size=probe.batch_size,
        # One thread for operations is not one core: input and the table's own operations have threads besides.
        cores=min(max(probe.threads.intra_op or share, probe.busy_cores / workers), share),
        link_bytes_per_s=here.link_bytes_per_s if probe.hosts > 1 else None,
    )
    low, high = probe.rate_low, probe.rate_high
    sd = MEASURED_SD if low is None or high is None else max((high - low) / (2 * Z * probe.examples_per_s), MEASURED_SD / 2)
    return Point(setup=setup, step_s=workers * probe.batch_size / probe.examples_per_s, sd=sd)


def _strategy(probe: Probe) -> Strategy:
    known: Mapping[str, Strategy] = {name: name for name in ("single", "tower", "mirrored", "horovod", "parameter_server")}
    return known[probe.strategy]


def scalings(measured: Sequence[Point], work: Work) -> dict[Strategy, Scaling]:
    """A fit for each strategy that was measured, with the single process's steps in each; Horovod and servers always."""
    alone = [point for point in measured if point.setup.strategy == "single"]
    names: set[Strategy] = {point.setup.strategy for point in measured} | {"single", "horovod", "parameter_server"}
    return {
        name: fit([*alone, *(point for point in measured if point.setup.strategy == name and name != "single")], work)
        for name in sorted(names)
    }


def choose(
    profile: Profile,
    race: Sequence[Measured],
    winner: Measured,
    manifest: Manifest,
    catalogue: Sequence[Instance],
    limits: Limits,
    type_here: str,
) -> tuple[Climb, tuple[Option, ...], Situation] | None:
    """The climb beyond this machine's own race, None where there is nothing to climb to.

    Args:
        type_here: the instance type that the probes ran on.
    """
    instance = next((one for one in catalogue if one.name == type_here), None)
    offered = hosts_to_weigh(limits, catalogue, instance)
    if not offered:
        return None
    probe, machine = winner.probe, winner.probe.machine
    memory = float(machine.memory_bytes) if machine and machine.memory_bytes else 4.0 * probe.rss_bytes
    cores = machine.physical_cores if machine else None
    here = host_of(instance, instance) if instance else unpriced_host(type_here, probe.usable_cpus, cores, memory)
    work = work_of(profile.settings, manifest)
    known = points([*profile.probes, *profile.scaling, *(one.probe for one in race)], here)
    situation = Situation(
        work=work,
        settings=profile.settings,
        scalings=scalings(known, work),
        measured=tuple({point.setup.strategy for point in known if point.setup.workers > 1}),
        here=here,
        input_per_s=fastest(profile.of_kind("input")).examples_per_s,
        startup_s=min(max(one.probe.job_s - profile.probe_s, 0.0) for one in race),
        limits=limits,
        gpu_percent=machine.gpu_percent_p95 if machine else None,
    )
    raced = [_raced(one, here, situation) for one in race]
    ran = {(one.hosts, one.strategy, one.host.name) for one in raced}
    weighed = weigh(situation, [host_of(one, instance) for one in offered])
    ranking = in_order([*raced, *(one for one in weighed if (one.hosts, one.strategy, one.host.name) not in ran)], limits)
    mine = next(one for one in ranking if one.raced and one.strategy == winner.candidate.strategy)
    source, compute = situation.input_per_s, fastest(profile.of_kind("compute")).examples_per_s
    footing = Footing(input_keeps_up=source >= compute * INPUT_HEADROOM, utilization=probe.utilization, here=mine)
    return climb(ranking, footing, limits), ranking, situation


def _raced(one: Measured, here: Host, situation: Situation) -> Option:
    """What the race measured, as an option; refused where it learns worse."""
    candidate, probe = one.candidate, one.probe
    made = option(situation, candidate.strategy, here, candidate.hosts, candidate.workers_per_host)
    rate = probe.examples_per_s
    low, high = probe.rate_low or rate * (1 - MEASURED_SD), probe.rate_high or rate * (1 + MEASURED_SD)
    measured = Estimate(examples_per_s=rate, low=min(low, rate), high=max(high, rate), busy=probe.utilization)
    return timed(replace(made, estimate=measured, raced=True, refused=one.worse), situation)


def placed(plan: Plan, climbed: Climb, ranking: Sequence[Option], situation: Situation) -> Plan:
    """The race's plan, or the plan of another machine where the climb went on, with what was weighed and why."""
    chosen, limits = climbed.chosen, situation.limits
    base = plan if chosen.raced else chosen.plan(situation.settings, spot=limits.spot)
    kept = [one for number, one in enumerate(ranking) if number < KEPT or one.frontier]
    return replace(
        chosen.expected(base),
        measured_examples_per_s=plan.measured_examples_per_s if chosen.raced else None,
        alternatives=climbed.alternatives,
        use_spot=limits.spot,
        encoding=plan.encoding,
        rungs=(*plan.rungs, *climbed.rungs),
        ranking=tuple(one.ranked() for one in kept),
    )
