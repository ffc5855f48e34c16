"""What the candidates are, and how fast each could be at best. Pure.

One machine is assumed: a second worker, and a second host, get a share of the same CPUs. So predictions are upper bounds, what
the CPUs would give if combining gradients cost nothing. They shortlist; only the race decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from components.plan import ModelSettings, Plan, Strategy, Threads, direct_plan
from components.profile import NOISE, Profile, fastest
from components.select_strategy.advice import learning_rate_factor


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A way to train. predicted_examples_per_s is an upper bound of all workers together; `basis` says where it comes from."""

    strategy: Strategy
    hosts: int = 1
    workers_per_host: int = 1
    threads: Threads
    predicted_examples_per_s: float
    basis: str

    def plan(self, settings: ModelSettings) -> Plan:
        settings = replace(settings, learning_rate_factor=learning_rate_factor(self.strategy, self.hosts, settings))
        plan = direct_plan(self.strategy, settings, hosts=self.hosts, workers_per_host=self.workers_per_host, threads=self.threads)
        return replace(plan, predicted_examples_per_s=self.predicted_examples_per_s)

    def __str__(self) -> str:
        if self.strategy == "single":
            return f"one process, {self.threads}"
        where = f"{self.hosts} hosts" if self.hosts > 1 else f"{self.workers_per_host} workers on one host"
        return f"{self.strategy} with {where}, {self.threads.intra_op} thread(s) each"


def upper_bound(profile: Profile, workers: int) -> tuple[float, str]:
    """Examples a second of several workers on the profiled machine if combining their gradients cost nothing, and its basis.

    A worker with its share of the CPUs is at best as fast as one process with so many threads; all of them are at best as fast
    as the CPU time of an example allows when every usable CPU is busy, and never faster than input alone.
    """
    both = profile.of_kind("both")
    share = max(1, int(fastest(both).usable_cpus) // workers)
    alike = [probe for probe in both if probe.threads.intra_op == share]
    basis = fastest(alike or both)
    bounds = [(fastest(profile.of_kind("input")).examples_per_s, "input alone")]
    if basis.busy_cores > 0:
        every_cpu = basis.examples_per_s / basis.utilization
        bounds.append((every_cpu, f"{basis.examples_per_s:,.0f} examples/s at {basis.utilization:.0%} CPU, scaled to all CPUs"))
    if alike:
        bounds.append((workers * basis.examples_per_s, f"{workers} times {basis.examples_per_s:,.0f} with {share} thread(s)"))
    return min(bounds)


def single_candidate(profile: Profile) -> Candidate:
    """One process with the fastest threads; TensorFlow's defaults unless another setting is faster by more than noise."""
    probes = profile.of_kind("both")
    best = fastest(probes)
    default = next((probe for probe in probes if probe.threads == Threads()), best)
    chosen = best if best.examples_per_s > default.examples_per_s * (1 + NOISE) else default
    return Candidate(
        strategy="single", threads=chosen.threads, predicted_examples_per_s=chosen.examples_per_s, basis="measured by the profile"
    )


def obstacle(profile: Profile, strategy: Strategy) -> str | None:
    """Why a strategy cannot run with these settings on this data, None when it can."""
    batch_size, rows = profile.settings.batch_size, profile.train_examples
    if strategy == "horovod" and batch_size % 2:
        return f"batch_size {batch_size} cannot be divided by 2 workers"
    if strategy == "parameter_server" and 2 * batch_size > rows:
        return f"2 workers with batch_size {batch_size} need {2 * batch_size} rows a step, the train split has {rows}"
    return None


def candidates(profile: Profile) -> tuple[Candidate, ...]:
    """Everything that can run here: the single process, Horovod with 2, 4, ... workers, parameter servers on two hosts."""
    usable = int(fastest(profile.of_kind("both")).usable_cpus)

    def several(strategy: Strategy, hosts: int, workers_per_host: int) -> Candidate:
        share = max(1, usable // (hosts * workers_per_host))
        bound, basis = upper_bound(profile, hosts * workers_per_host)
        # Processes that are all bound compactly would sit on the same cores.
        threads = Threads(intra_op=share, inter_op=share, omp=share, kmp_affinity="disabled")
        return Candidate(
            strategy=strategy,
            hosts=hosts,
            workers_per_host=workers_per_host,
            threads=threads,
            predicted_examples_per_s=bound,
            basis=basis,
        )

    counts, workers = [], 2
    while workers <= max(2, usable):
        if profile.settings.batch_size % workers == 0:
            counts.append(workers)
        workers *= 2
    horovod = tuple(several("horovod", 1, count) for count in counts)
    servers = () if obstacle(profile, "parameter_server") else (several("parameter_server", 2, 1),)
    return (single_candidate(profile), *horovod, *servers)


def shortlist(every: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The best predicted of each kind, in the order given; of equals the first, which has the fewest workers."""
    best: dict[Strategy, Candidate] = {}
    for candidate in every:
        rival = best.get(candidate.strategy)
        if rival is None or candidate.predicted_examples_per_s > rival.predicted_examples_per_s:
            best[candidate.strategy] = candidate
    return tuple(best.values())
