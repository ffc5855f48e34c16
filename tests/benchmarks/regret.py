"""What the chosen plan lacks to the best one, and what choosing costs: both steps against measuring every candidate.

    python tests/benchmarks/regret.py [--only default tiny ...] [--seconds 4] [--rounds 1] [--budget-s 20] [--race-s 2]

In each situation both steps run as in the pipeline, at the local endpoint. Then every candidate runs as a real job, in rounds, so
that what else the machine does hits all alike; a candidate's rate is the mean of its rounds. Of candidates that are as good as each
other the best was the luckiest, so the chosen plan and the best one run again, in turn, and the ratio is that of these new means.
The steps share nothing with the exhaustive measurement, neither candidates nor figures. `slow link` needs root.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from situations import SITUATIONS, Datasets, Situation, in_own_network
from timed_jobs import run_for

from components.errors import InvalidConfig
from components.job_settings import JobSettings
from components.plan import STRATEGIES, Plan, Threads, direct_plan, hyperparameters
from components.profile_utilization.step import ProfileConfig, profile_utilization
from components.resources import usable_cpus
from components.select_strategy.step import SelectConfig, select_strategy
from pipelines.local_jobs import local_jobs

AIM_RATIO, AIM_SHARE = 0.95, 0.15


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One row of the table. `ratio` compares the last, alternating runs of chosen and best; 1 where they are the same plan."""

    situation: str
    chosen: Plan
    best: Plan
    rates: tuple[float, float]
    ratio: float
    probing_s: float
    exhaustive_s: float


def every_plan(situation: Situation, cpus: int) -> Iterator[Plan]:
    """All ways to train on this machine that the article names: strategies, workers, and thread settings of each."""
    bound, half = "granularity=fine,compact,1,0", max(1, cpus // 2)
    single = (
        Threads(),
        Threads(intra_op=cpus, inter_op=cpus, omp=cpus, kmp_affinity=bound),
        Threads(intra_op=half, inter_op=half, omp=half, kmp_affinity=bound),
        Threads(intra_op=cpus, inter_op=cpus, omp=cpus, kmp_affinity="disabled"),
    )
    shared = (Threads(intra_op=half, inter_op=half, omp=half, kmp_affinity="disabled"), Threads())
    for strategy in STRATEGIES:
        if strategy == "single":
            places, settings = [(1, 1)], single
        elif strategy == "horovod":
            places, settings = [(1, 2), (2, 1)], shared
        elif strategy == "parameter_server":
            places, settings = [(2, 1)], shared
        else:
            places, settings = [(1, 1)], single[-1:]
        for (hosts, workers), threads in ((place, threads) for place in places for threads in settings):
            try:
                yield direct_plan(strategy, situation.settings(), hosts=hosts, workers_per_host=workers, threads=threads)
            except InvalidConfig as error:
                print(f"{situation.name}: {strategy} cannot run: {error}", file=sys.stderr)


def same(one: Plan, other: Plan) -> bool:
    """Whether two plans are the same jobs."""
    return one.instance_count == other.instance_count and hyperparameters(one) == hyperparameters(other)


class Measurement:
    """Rates of real jobs in one situation, and how far it is."""

    def __init__(self, situation: Situation, dataset: Path, jobs: JobSettings, seconds: float) -> None:
        self._situation, self._dataset, self._jobs, self._seconds = situation, dataset, jobs, seconds
        self._count = 0

    def rate(self, plan: Plan) -> float:
        self._count += 1
        task = f"{self._situation.name.replace(' ', '-')}-{self._count}"
        rate = run_for(plan, self._dataset, self._jobs, task=task, seconds=self._seconds).examples_per_s
        print(f"{self._situation.name}: {rate:>9,.0f} examples/s, {plan.summary()}", file=sys.stderr, flush=True)
        return rate


def regret(situation: Situation, dataset: Path, work: Path, jobs: JobSettings, arguments: argparse.Namespace) -> Outcome:
    """Both steps, then all candidates, then chosen against best."""
    start = time.monotonic()
    config = ProfileConfig(settings=situation.settings(), budget_s=arguments.budget_s)
    profile_utilization(config, dataset, work / "profile.json", work / "profile.html", jobs)
    race = SelectConfig(race_s=arguments.race_s)
    chosen = select_strategy(race, work / "profile.json", dataset, work / "plan.json", work / "plan.html", jobs)
    probing_s = time.monotonic() - start
    print(f"{situation.name}: chosen after {probing_s:.0f} s: {chosen.summary()}", file=sys.stderr, flush=True)

    measurement = Measurement(situation, dataset, jobs, arguments.seconds)
    plans = list(every_plan(situation, usable_cpus().count))
    if not any(same(chosen, plan) for plan in plans):
        plans.append(chosen)
    start = time.monotonic()
    rounds = [[measurement.rate(plan) for plan in plans] for _ in range(arguments.rounds)]
    exhaustive_s = time.monotonic() - start
    means = [statistics.mean(each) for each in zip(*rounds, strict=True)]
    best = plans[means.index(max(means))]
    rates, ratio = (max(means), max(means)), 1.0
    if not same(chosen, best):
        pairs = [(chosen, best) if number % 2 else (best, chosen) for number in range(arguments.duels)]
        new = [{id(plan): measurement.rate(plan) for plan in pair} for pair in pairs]
        rates = (statistics.mean(each[id(chosen)] for each in new), statistics.mean(each[id(best)] for each in new))
        ratio = rates[0] / rates[1]
    return Outcome(
        situation=situation.name,
        chosen=chosen,
        best=best,
        rates=rates,
        ratio=ratio,
        probing_s=probing_s,
        exhaustive_s=exhaustive_s,
    )


def row(outcome: Outcome) -> str:
    rates = [f"{rate:,.0f}" for rate in outcome.rates]
    cells = [outcome.situation, outcome.chosen.summary(), rates[0], outcome.best.summary(), rates[1], f"{outcome.ratio:.1%}"]
    cells += [f"{outcome.probing_s:.0f}", f"{outcome.exhaustive_s:.0f}", f"{outcome.probing_s / outcome.exhaustive_s:.0%}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [situation.name for situation in SITUATIONS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="SITUATION", help=", ".join(names))
    parser.add_argument("--seconds", type=float, default=4.0, help="that each job of the exhaustive measurement measures")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--duels", type=int, default=2, help="times that chosen and best run again where they differ")
    parser.add_argument("--budget-s", type=float, default=20.0, help="of profile_utilization")
    parser.add_argument("--race-s", type=float, default=2.0, help="that each job of the race measures")
    arguments = parser.parse_args()
    chosen = [situation for situation in SITUATIONS if situation.name in arguments.only]
    if any(situation.link_bits_per_s for situation in chosen):
        in_own_network()
    outcomes, began = [], time.monotonic()
    print("| situation | chosen | examples/s | best | examples/s | chosen / best | probing, s | exhaustive, s | share |")
    print("|" + "---|" * 9, flush=True)
    with tempfile.TemporaryDirectory(prefix="ctrflow-regret-") as folder, local_jobs() as jobs:
        datasets = Datasets(Path(folder) / "data")
        for number, situation in enumerate(chosen, start=1):
            dataset, work = datasets.of(situation), Path(folder) / f"situation-{number}"
            work.mkdir()
            # Situations that differ in the machine only ask for the same jobs: within a run the operator would adopt the first's.
            own = replace(jobs, run_id=f"{jobs.run_id}-{number}")
            with situation.machine(work):
                outcomes.append(regret(situation, dataset, work, own, arguments))
            print(row(outcomes[-1]), flush=True)
            spent = time.monotonic() - began
            left = spent / number * (len(chosen) - number)
            print(f"{number} of {len(chosen)} situations in {spent / 60:.1f} min, about {left / 60:.0f} min left", file=sys.stderr)
    worst, share = min(each.ratio for each in outcomes), max(each.probing_s / each.exhaustive_s for each in outcomes)
    for what, value, met in (("chosen / best", worst, worst >= AIM_RATIO), ("share", share, share <= AIM_SHARE)):
        aim = AIM_RATIO if what == "chosen / best" else AIM_SHARE
        print(f"worst {what}: {value:.1%}; the aim of {aim:.0%} is {'met' if met else 'missed'}")


if __name__ == "__main__":
    main()
