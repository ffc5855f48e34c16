"""What a profile tries, in which order, and when it stops."""

from typing import Any

import pytest

from components.plan import ModelSettings, Threads, direct_plan
from components.profile import Probe
from components.profile_utilization.budget import Budget, usd
from components.profile_utilization.search import input_candidates, scaling_candidates, successive_halving, thread_candidates


def measured(rate: float, **changes: Any) -> Probe:
    figures: dict[str, Any] = {
        "kind": "both",
        "strategy": "single",
        "hosts": 1,
        "workers_per_host": 1,
        "batch_size": 1024,
        "threads": Threads(),
        "examples_per_s": rate,
        "step_p50_s": 0.02,
        "step_p90_s": 0.03,
        "step_p99_s": 0.04,
        "input_wait_share": 0.25,
        "compute_share": 0.75,
        "communication_share": 0.0,
        "cpu_percent_per_core": (),
        "rss_bytes": 1,
        "usable_cpus": 2,
        "usable_cpus_source": "host",
        "job_name": "job",
        "job_s": 8.0,
    }
    return Probe(**{**figures, **changes})


@pytest.mark.parametrize(
    ("usable_cpus", "physical_cores", "intra_op"),
    [
        (1, None, [1]),
        (1.5, 1, [1]),
        (2, None, [1, 2, 2, 1, 1]),
        # Each vCPU a core of its own: half of them is still worth a try.
        (2, 2, [1, 2, 2, 1, 1]),
        (8, 4, [4, 8, 8, 1, 4]),
        (8, 6, [6, 8, 8, 1, 6]),
        (96, None, [48, 96, 96, 1, 48]),
    ],
)
def test_threads_tried(usable_cpus: float, physical_cores: int | None, intra_op: list[int]) -> None:
    found = thread_candidates(usable_cpus, physical_cores)
    assert [threads.intra_op for threads in found] == intra_op


def test_threads_are_bound_on_physical_cores_and_free_on_all_cpus() -> None:
    # Article, item 1: compact binding tops out at the physical cores; `disabled` also uses hyper-threads.
    half, every = thread_candidates(8)[:2]
    assert (half.kmp_affinity, every.kmp_affinity) == ("granularity=fine,compact,1,0", "disabled")


def test_halving_measures_the_better_half_again_for_twice_as_long_beside_the_reference() -> None:
    rates, asked = {"a": 1.0, "b": 4.0, "c": 2.0, "d": 3.0, "default": 2.5}, []

    def measure(name: str, seconds: float) -> Probe:
        asked.append((name, seconds))
        return measured(rates[name] + seconds / 100)

    last, dropped = successive_halving(("default", measured(2.5)), list("abcd"), measure, 1.0)
    assert asked == [
        *[(name, 1.0) for name in "abcd"],
        *[(name, 2.0) for name in ("default", "b", "d")],
        *[(name, 4.0) for name in ("default", "b")],
    ]
    assert {name: probe.examples_per_s for name, probe in last.items()} == pytest.approx({"default": 2.54, "b": 4.04})
    # One of the first round, where all were compared: what was dropped may have been measured in a faster minute.
    assert len(dropped) == 5 + 3


@pytest.mark.parametrize(
    ("jobs", "compared", "dropped"),
    [
        (0, ["default"], []),
        (2, ["default", "a", "b"], []),
        # Time for the first round, and the reference again, which has no rival then.
        (5, ["default", "a", "b", "c", "d"], [2.02]),
        # One rival of the second round.
        (6, ["default", "d"], [2.0, 1.01, 1.01, 1.01, 1.01]),
    ],
)
def test_halving_compares_within_the_last_round_that_had_a_rival(jobs: int, compared: list[str], dropped: list[float]) -> None:
    rates = {"default": 2.0, "a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}
    left = [jobs]

    def measure(name: str, seconds: float) -> Probe | None:
        left[0] -= 1
        return measured(rates[name] + seconds / 100 + (name == "d") / 1e6) if left[0] >= 0 else None

    last, others = successive_halving(("default", measured(2.0)), list("abcd"), measure, 1.0)
    assert list(last) == compared
    assert [probe.examples_per_s for probe in others] == pytest.approx(dropped, abs=1e-4)


def test_input_is_tried_with_one_change_at_a_time() -> None:
    plan = direct_plan("single", ModelSettings())
    found = input_candidates(plan, 8, shards=3)
    assert [(one.parallel_reads, one.map_parallelism, one.prefetch_batches, one.cache) for one in found] == [
        (3, 0, 0, "auto"),
        (0, 4, 0, "auto"),
        (0, 0, 16, "auto"),
        (0, 0, 0, "off"),
    ]
    assert input_candidates(plan, 8, shards=1)[0].parallel_reads == 0  # one file cannot be read side by side


@pytest.mark.parametrize(
    ("batch_size", "usable", "rows", "expected"),
    [
        (1024, 2, 10_000, [("horovod", 1, 2), ("parameter_server", 2, 1), ("horovod", 2, 1)]),
        (1024, 8, 10_000, [("horovod", 1, 2), ("horovod", 1, 4), ("parameter_server", 2, 1), ("horovod", 2, 1)]),
        (1023, 8, 2_000, []),
    ],
)
def test_several_workers_are_tried_where_they_can_run(
    batch_size: int, usable: int, rows: int, expected: list[tuple[str, int, int]]
) -> None:
    found = scaling_candidates(ModelSettings(batch_size=batch_size), measured(1.0, usable_cpus=usable), rows, own_machines=False)
    assert [(plan.strategy, plan.instance_count, plan.workers_per_host) for plan in found] == expected
    assert all(plan.instance_count * plan.workers_per_host * plan.intra_op_threads <= usable for plan in found)


def test_a_job_runs_only_when_the_longest_start_up_so_far_would_fit() -> None:
    budget = Budget(limit_s=30.0, probe_s=2.0, paid=False)
    budget.spend([measured(1.0, job_s=10.0), measured(1.0, job_s=2.0)])
    assert budget.spent_s == 12.0
    # 8 s of start-up, and what is measured.
    assert budget.expected_s(4.0) == 12.0
    assert budget.fits(10.0)
    assert not budget.fits(10.1)
    assert not budget.fits(2.0, keep_s=10.0)


def test_paid_seconds_count_for_every_host() -> None:
    budget = Budget(limit_s=900.0, probe_s=2.0, paid=True)
    # Waiting for a machine takes minutes and costs nothing.
    budget.spend([measured(1.0, job_s=200.0, billable_s=60.0, hosts=2)])
    assert (budget.spent_s, budget.instance_s) == (120.0, 120.0)
    assert budget.expected_s(2.0, hosts=2) == 120.0
    assert usd(budget.instance_s, 0.9) == pytest.approx(0.03)
    assert usd(budget.instance_s, None) is None


def test_searches_leave_time_for_several_workers_where_there_is_more_than_a_minute() -> None:
    assert [Budget(limit_s=limit_s, probe_s=2.0, paid=False).reserve_s for limit_s in (45.0, 180.0)] == [0.0, 60.0]
