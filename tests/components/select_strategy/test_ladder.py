"""The ladder as a table: measurements in, decision and reasons out. No job is run here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from components.errors import InvalidConfig
from components.plan import ModelSettings, Plan, ProbeKind, Threads
from components.profile import Probe, Profile
from components.select_strategy.cost_model import candidates, shortlist, single_candidate, upper_bound
from components.select_strategy.elsewhere import points
from components.select_strategy.ladder import Measured, forced, leader, select
from components.select_strategy.ladder import measured as in_all
from components.select_strategy.machines import unpriced_host
from components.select_strategy.race import Heat, Runner

ONE = Threads(intra_op=1, inter_op=1, omp=1, kmp_affinity="granularity=fine,compact,1,0")
TWO = Threads(intra_op=2, inter_op=2, omp=2, kmp_affinity="disabled")


def measured(
    kind: ProbeKind, rate: float, threads: Threads | None = None, *, cpus: int = 2, busy: float = 1.0, strategy: str = "single"
) -> Probe:
    """A probe with a rate and a share of busy CPUs; the rest does not decide anything."""
    return Probe(
        kind=kind,
        strategy=strategy,
        hosts=1,
        workers_per_host=1,
        batch_size=1024,
        threads=threads or Threads(),
        examples_per_s=rate,
        step_p50_s=0.02,
        step_p90_s=0.03,
        step_p99_s=0.04,
        input_wait_share=0.1,
        compute_share=0.8,
        communication_share=0.1,
        cpu_percent_per_core=(busy * 100,) * cpus,
        rss_bytes=2**30,
        usable_cpus=cpus,
        usable_cpus_source="host",
        job_name="job",
        job_s=8.0,
    )


def profile(
    both: Sequence[Probe], *, source: float = 500_000.0, compute: float = 55_000.0, batch_size: int = 1024, rows: int = 180_000
) -> Profile:
    return Profile(
        data_digest="d",
        dataset="/data",
        train_examples=rows,
        settings=ModelSettings(batch_size=batch_size),
        probe_s=2.0,
        probes=(*both, measured("compute", compute), measured("input", source)),
    )


def race(of: Profile, *, single: float, horovod: float | None = None, parameter_server: float | None = None) -> Plan:
    rates = {"single": single, "horovod": horovod, "parameter_server": parameter_server}
    runners = shortlist(candidates(of))
    entries = [
        Measured(candidate=one, probe=measured("both", rate, one.threads, strategy=one.strategy))
        for one in runners
        if (rate := rates[one.strategy]) is not None
    ]
    return select(of, entries)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table. `passed` names rungs and whether they were passed; `says` must appear in some rung's sentences."""

    name: str
    default: float = 50_000.0
    one_thread: float | None = None
    two_threads: float | None = None
    busy: float = 0.95
    source: float = 500_000.0
    horovod: float = 40_000.0
    parameter_server: float = 20_000.0
    strategy: str = "single"
    intra_op: int = 0
    passed: dict[str, bool]
    says: tuple[str, ...]


CASES = [
    Case(
        name="one full process beats both on one machine",
        passed={"input": True, "utilization": True, "horovod": False, "parameter_server": False, "choice": True},
        says=("95% of 2 CPUs busy", "40,000 examples/s, 0.80 times one process's 50,000", "20,000 examples/s, 0.40 times"),
    ),
    Case(
        name="two ranks win when one process leaves CPUs idle",
        busy=0.6,
        horovod=65_000.0,
        strategy="horovod",
        intra_op=1,
        passed={"utilization": False, "horovod": True, "parameter_server": False},
        says=(
            "one process leaves CPUs idle",
            "65,000 examples/s, 1.30 times one process's 50,000",
            "one process, default threads: 50,000",
        ),
    ),
    Case(
        name="a win within noise is no win",
        horovod=52_000.0,
        passed={"horovod": False},
        says=("1.04 times",),
    ),
    Case(
        name="of two winners the faster",
        horovod=60_000.0,
        parameter_server=70_000.0,
        strategy="parameter_server",
        intra_op=1,
        passed={"horovod": True, "parameter_server": True},
        says=("updates are asynchronous",),
    ),
    Case(
        name="fewer threads win by more than noise",
        default=40_000.0,
        one_thread=50_000.0,
        two_threads=41_000.0,
        intra_op=1,
        passed={"threads": True, "horovod": False},
        says=("default threads: 40,000",),
    ),
    Case(
        name="threads within noise leave the defaults alone",
        default=50_000.0,
        two_threads=51_000.0,
        passed={"threads": True},
        says=("50,000 examples/s in one process",),
    ),
    Case(
        name="a slow input pipeline is said first",
        source=60_000.0,
        passed={"input": False},
        says=("mend the input pipeline before adding workers", "1.1 times"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_measurements_decide(case: Case) -> None:
    both = [measured("both", case.default, busy=case.busy)]
    if case.one_thread:
        both.append(measured("both", case.one_thread, ONE, busy=0.5))
    if case.two_threads:
        both.append(measured("both", case.two_threads, TWO, busy=case.busy))
    known = profile(both, source=case.source)
    single = max(case.default, case.one_thread or 0)
    plan = race(known, single=single, horovod=case.horovod, parameter_server=case.parameter_server)
    assert (plan.strategy, plan.intra_op_threads) == (case.strategy, case.intra_op)
    rungs = {rung.name: rung for rung in plan.rungs}
    assert {name: rungs[name].passed for name in case.passed} == case.passed
    everything = "\n".join(f"{rung.decision} | {rung.measured} | {rung.beat}" for rung in plan.rungs)
    assert [text for text in case.says if text not in everything] == []


def test_rungs_come_in_the_order_of_the_ladder() -> None:
    plan = race(profile([measured("both", 50_000.0)]), single=50_000.0, horovod=1.0, parameter_server=1.0)
    names = ["input", "threads", "utilization", "horovod", "parameter_server", "choice", "more machines"]
    assert [rung.name for rung in plan.rungs] == names


def test_the_plan_carries_the_measured_rate_of_the_winner() -> None:
    plan = race(profile([measured("both", 50_000.0)]), single=48_000.0, horovod=60_000.0, parameter_server=1.0)
    assert plan.measured_examples_per_s == 60_000.0
    assert (plan.instance_count, plan.workers_per_host, plan.batch_size) == (1, 2, 512)


@pytest.mark.parametrize(
    ("both", "workers", "expected"),
    [
        # 50,000 at 50 % of the CPUs: all of them would give twice as much.
        ([measured("both", 50_000.0, busy=0.5)], 2, 100_000.0),
        # One process with one thread does 30,000 on one of two CPUs: two of them at best 60,000, whatever the defaults did.
        ([measured("both", 50_000.0), measured("both", 30_000.0, ONE, busy=0.5)], 2, 60_000.0),
        # The one-threaded process keeps 1.5 CPUs busy (input threads): two such find only 2 CPUs, so 30,000 / 0.75.
        ([measured("both", 50_000.0), measured("both", 30_000.0, ONE, busy=0.75)], 2, 40_000.0),
        # Never more than input alone.
        ([measured("both", 400_000.0, busy=0.5)], 2, 500_000.0),
        # Four workers on two CPUs have no more CPU than two.
        ([measured("both", 30_000.0, ONE, busy=0.5)], 4, 60_000.0),
    ],
)
def test_the_prediction_is_the_tightest_of_its_bounds(both: list[Probe], workers: int, expected: float) -> None:
    assert upper_bound(profile(both), workers)[0] == pytest.approx(expected)


def test_a_probe_too_short_to_sample_cpus_bounds_by_input_alone() -> None:
    assert upper_bound(profile([measured("both", 50_000.0, busy=0.0)]), 2)[0] == 500_000.0


@pytest.mark.parametrize(
    ("cpus", "batch_size", "workers"),
    [(1, 1024, [2]), (2, 1024, [2]), (8, 1024, [2, 4, 8]), (8, 12, [2, 4]), (8, 1023, [])],
)
def test_horovod_is_tried_with_counts_that_divide_the_batch(cpus: int, batch_size: int, workers: list[int]) -> None:
    every = candidates(profile([measured("both", 50_000.0, cpus=cpus)], batch_size=batch_size))
    assert [one.workers_per_host for one in every if one.strategy == "horovod"] == workers


def test_workers_share_the_cpus() -> None:
    every = candidates(profile([measured("both", 50_000.0, cpus=8)]))
    assert [(one.strategy, one.hosts * one.workers_per_host * one.threads.intra_op) for one in every[1:]] == [
        ("horovod", 8),
        ("horovod", 8),
        ("horovod", 8),
        ("parameter_server", 8),
    ]


def test_the_shortlist_has_one_of_each_kind_and_the_simplest_of_equals() -> None:
    short = shortlist(candidates(profile([measured("both", 50_000.0, cpus=8, busy=0.5)])))
    assert [(one.strategy, one.hosts, one.workers_per_host) for one in short] == [
        ("single", 1, 1),
        ("horovod", 1, 2),
        ("parameter_server", 2, 1),
    ]


def test_what_cannot_run_is_said_and_left_out() -> None:
    odd = profile([measured("both", 50_000.0)], batch_size=1023, rows=1500)
    plan = race(odd, single=50_000.0)
    rungs = {rung.name: rung.measured for rung in plan.rungs}
    assert plan.strategy == "single"
    assert rungs["horovod"] == "batch_size 1023 cannot be divided by 2 workers"
    assert rungs["parameter_server"] == "2 workers with batch_size 1023 need 2046 rows a step, the train split has 1500"
    with pytest.raises(InvalidConfig, match="1023"):
        forced(odd, "horovod")


@pytest.mark.parametrize(
    ("strategy", "hosts", "workers_per_host", "batch_size", "measured_rate"),
    [("single", 1, 1, 1024, 50_000.0), ("horovod", 1, 2, 512, None), ("parameter_server", 2, 1, 1024, None)],
)
def test_a_demanded_strategy_is_planned_and_said_to_be_unproven(
    strategy: Any, hosts: int, workers_per_host: int, batch_size: int, measured_rate: float | None
) -> None:
    plan = forced(profile([measured("both", 50_000.0)]), strategy)
    assert (plan.strategy, plan.instance_count, plan.workers_per_host, plan.batch_size) == (
        strategy,
        hosts,
        workers_per_host,
        batch_size,
    )
    assert plan.measured_examples_per_s == measured_rate
    assert "demanded" in plan.rungs[-1].decision
    assert "not raced" in plan.rungs[-1].measured


def test_a_single_process_that_was_never_beaten_by_threads_keeps_the_defaults() -> None:
    assert single_candidate(profile([measured("both", 50_000.0), measured("both", 52_000.0, TWO)])).threads == Threads()


def test_a_win_that_does_not_repeat_is_no_win() -> None:
    of = profile([measured("both", 50_000.0)])
    runners = {one.strategy: one for one in shortlist(candidates(of))}

    def ran(strategy: str, rate: float) -> Measured:
        return Measured(candidate=runners[strategy], probe=measured("both", rate, runners[strategy].threads, strategy=strategy))

    # Something else ran while the single process was measured first.
    entries = [ran("single", 20_000.0), ran("horovod", 35_000.0)]
    assert leader(entries) is entries[1]
    again = {"single": 50_000.0, "horovod": 33_000.0}
    repeated = [
        in_all(
            Runner(
                candidate=one.candidate,
                heats=tuple(Heat(probe=probe, losses=()) for probe in (one.probe, ran(strategy, again[strategy]).probe)),
            )
        )
        for strategy, one in zip(again, entries, strict=True)
    ]
    assert [entry.probe.examples_per_s for entry in repeated] == [35_000.0, 34_000.0]
    assert leader(repeated) is repeated[0]
    choice = next(rung for rung in select(of, repeated).rungs if rung.name == "choice")
    assert choice.measured == "35,000 examples/s in 2 real jobs"


def test_a_plan_that_learns_clearly_worse_is_marked_and_not_chosen() -> None:
    of = profile([measured("both", 50_000.0)])
    single, horovod, servers = shortlist(candidates(of))
    entries = [
        Measured(candidate=single, probe=measured("both", 50_000.0)),
        Measured(candidate=horovod, probe=measured("both", 60_000.0)),
        Measured(candidate=servers, probe=measured("both", 90_000.0), worse="loss 0.6 after 99 examples, one process has 0.5"),
    ]
    plan = select(of, entries)
    assert plan.strategy == "horovod"
    rung = next(rung for rung in plan.rungs if rung.name == "parameter_server")
    assert not rung.passed
    assert "loss 0.6 after 99 examples" in rung.decision


@pytest.mark.parametrize(("busy", "cores"), [(0.5, 1.0), (0.9, 1.8), (0.3, 1.0)])
def test_a_process_of_one_thread_counts_for_the_cores_that_it_kept_busy(busy: float, cores: float) -> None:
    here = unpriced_host("local", 2, 2, 16e9)
    (point,) = points([measured("both", 30_000.0, ONE, busy=busy)], here)
    assert point.setup.cores == pytest.approx(cores)
