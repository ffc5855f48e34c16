"""Which settings to try, and the search for the best of them within what time is left. Pure: who measures is an argument."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from components.plan import ModelSettings, Plan, Threads, direct_plan
from components.profile import Probe

Setting = TypeVar("Setting", bound=Hashable)
# Measures a setting for so many seconds; None when there is no time for it.
Measure = Callable[[Setting, float], Probe | None]


def thread_candidates(usable_cpus: float, physical_cores: int | None = None) -> tuple[Threads, ...]:
    """Thread settings worth trying besides the defaults, the most different first.

    Starting points of the article, item 1: the physical cores (half the vCPUs, where it is not known otherwise), bound to them; and
    all vCPUs, not bound. The latter differs from TensorFlow's defaults where a CPU quota hides CPUs that it counts. Then one graph
    operation at a time, each with all CPUs; many at a time, each with one; and the physical cores, not bound.
    """
    every = max(1, int(usable_cpus))
    half = max(1, every // 2)
    cores = min(physical_cores or half, every)
    if cores == every:
        cores = half
    bound = Threads(intra_op=cores, inter_op=cores, omp=cores, kmp_affinity="granularity=fine,compact,1,0")
    free = Threads(intra_op=every, inter_op=every, omp=every, kmp_affinity="disabled")
    if cores == every:
        return (free,)
    wide = Threads(intra_op=every, inter_op=1, omp=every, kmp_affinity="disabled")
    narrow = Threads(intra_op=1, inter_op=every, omp=1, kmp_affinity="disabled")
    loose = Threads(intra_op=cores, inter_op=cores, omp=cores, kmp_affinity="disabled")
    return bound, free, wide, narrow, loose


def input_candidates(plan: Plan, usable_cpus: float, shards: int) -> tuple[Plan, ...]:
    """Other ways to read, the most promising first: plans that differ in nothing else.

    Args:
        shards: files of the train split; no more can be read side by side.
    """
    readers = min(max(2, int(usable_cpus) // 2), shards)
    decoders = max(2, int(usable_cpus) // 2)
    found = [replace(plan, map_parallelism=decoders), replace(plan, prefetch_batches=16), replace(plan, cache="off")]
    if readers > 1:
        found.insert(0, replace(plan, parallel_reads=readers))
    return tuple(found)


def scaling_candidates(settings: ModelSettings, single: Probe, rows: int, own_machines: bool) -> tuple[Plan, ...]:
    """Plans of 2 (4) workers on one host and on two, the cheapest first; none that cannot run.

    Args:
        own_machines: every host has a machine of its own; else all share the CPUs of one.
    """
    usable = max(int(single.usable_cpus), 1)

    def plan(strategy: Literal["horovod", "parameter_server"], hosts: int, workers: int) -> Plan:
        share = max(1, usable // (workers if own_machines else hosts * workers))
        # Processes that are all bound compactly would sit on the same cores.
        threads = Threads(intra_op=share, inter_op=share, omp=share, kmp_affinity="disabled")
        return direct_plan(strategy, settings, hosts=hosts, workers_per_host=workers, threads=threads)

    found = [plan("horovod", 1, workers) for workers in (2, 4) if workers <= max(2, usable) and not settings.batch_size % workers]
    if 2 * settings.batch_size <= rows:
        found.append(plan("parameter_server", 2, 1))
    if settings.batch_size % 2 == 0:
        found.append(plan("horovod", 2, 1))
    return tuple(found)


def successive_halving(
    reference: tuple[Setting, Probe], candidates: Sequence[Setting], measure: Measure[Setting], seconds: float
) -> tuple[dict[Setting, Probe], list[Probe]]:
    """Measure all candidates briefly, then the better half for twice as long, and so on until one is left or there is no time.

    Source: Jamieson and Talwalkar 2016, "Non-stochastic best arm identification and hyperparameter optimization". The reference
    is never dropped: on a shared machine another minute is another speed, so only what one round measured is compared.

    Args:
        reference: a setting and what was measured with it for `seconds`.
    Returns:
        the last round in which the reference had a rival, the reference first; what other rounds measured.
    """
    setting, probe = reference
    this_round: dict[Setting, Probe] = {setting: probe}
    last, dropped, rivals = this_round, [], list(candidates)
    while rivals:
        for rival in rivals:
            found = measure(rival, seconds)
            if found is None:
                break
            this_round[rival] = found
        if len(this_round) > 1:
            dropped += [each for each in last.values() if last is not this_round]
            last = this_round
        if len(this_round) <= len(rivals) or len(rivals) == 1:
            break  # no time left, or a single rival, which the reference has met
        rivals = sorted(rivals, key=lambda each: -last[each].examples_per_s)[: (len(rivals) + 1) // 2]
        seconds *= 2
        again = measure(setting, seconds)
        if again is None:
            break
        this_round = {setting: again}
    if this_round is not last:
        dropped += list(this_round.values())
    return last, dropped
