"""Who runs again, who is dropped, and whose loss is clearly worse."""

import random
from dataclasses import replace
from typing import Any

import pytest

from components.measurements import InputSettings
from components.plan import Threads
from components.profile import Probe
from components.select_strategy.cost_model import Candidate
from components.select_strategy.race import Heat, clearly_worse, heat_of, race


def probe(rate: float, low: float | None = None, high: float | None = None) -> Probe:
    return Probe(
        kind="both",
        strategy="single",
        hosts=1,
        workers_per_host=1,
        batch_size=1024,
        threads=Threads(),
        examples_per_s=rate,
        step_p50_s=0.02,
        step_p90_s=0.03,
        step_p99_s=0.04,
        input_wait_share=0.1,
        compute_share=0.8,
        communication_share=0.1,
        cpu_percent_per_core=(95.0, 95.0),
        rss_bytes=2**30,
        usable_cpus=2,
        usable_cpus_source="host",
        job_name="job",
        job_s=8.0,
        rate_low=low,
        rate_high=high,
        input=InputSettings(),
    )


def candidate(strategy: Any) -> Candidate:
    return Candidate(strategy=strategy, threads=Threads(), predicted_examples_per_s=1.0, basis="")


def jobs(**rates: list[float]) -> tuple[Any, dict[str, int]]:
    """Something that runs jobs with these rates, one after the other, and how many each strategy ran."""
    counts = dict.fromkeys(rates, 0)

    def run(one: Candidate, number: int) -> Heat:
        assert number == counts[one.strategy]
        counts[one.strategy] += 1
        return Heat(probe=probe(rates[one.strategy][number]), losses=())

    return run, counts


@pytest.mark.parametrize(
    ("strategy", "hosts", "workers_per_host", "batch_size", "examples"),
    [
        ("single", 1, 1, 1024, 10_240),
        ("horovod", 1, 2, 512, 10_240),
        ("horovod", 2, 2, 256, 10_240),
        # Each worker's step is one of the job's.
        ("parameter_server", 2, 1, 1024, 10_240),
    ],
)
def test_losses_of_all_strategies_are_counted_by_examples(
    strategy: str, hosts: int, workers_per_host: int, batch_size: int, examples: int
) -> None:
    one = replace(probe(1.0), strategy=strategy, hosts=hosts, workers_per_host=workers_per_host, batch_size=batch_size)
    assert heat_of(one, [(1, 0.7), (10, 0.6)]).losses == ((1024, 0.7), (examples, 0.6))


@pytest.mark.parametrize(
    ("rates", "ran"),
    [
        # Clear losers run once, and so does the single process that leads.
        ({"single": [100.0], "horovod": [60.0], "parameter_server": [30.0]}, {"single": 1, "horovod": 1, "parameter_server": 1}),
        # A leading challenger and the single process run again, the clear loser does not.
        (
            {"single": [100.0, 100.0], "horovod": [130.0, 90.0], "parameter_server": [30.0]},
            {"single": 2, "horovod": 2, "parameter_server": 1},
        ),
        # Two that cannot be told apart both run again.
        (
            {"single": [100.0, 100.0], "horovod": [130.0, 130.0], "parameter_server": [125.0, 120.0]},
            {"single": 2, "horovod": 2, "parameter_server": 2},
        ),
    ],
)
def test_clear_losers_are_dropped_after_one_job(rates: dict[str, list[float]], ran: dict[str, int]) -> None:
    run, counts = jobs(**rates)
    runners = race([candidate(strategy) for strategy in rates], run)
    assert counts == ran
    assert [one.rate for one in runners] == [sum(each) / len(each) for each in rates.values()]


def curve(start: float, end: float, *, each: int = 1024, count: int = 100, seed: int = 1) -> list[tuple[float, float]]:
    """A loss that falls from start to end in a straight line with noise of 0.01."""
    noise = random.Random(seed)
    return [(each * (n + 1), start + (end - start) * n / count + noise.gauss(0, 0.01)) for n in range(count)]


def test_a_loss_that_is_clearly_worse_after_the_same_examples_is_named() -> None:
    said = clearly_worse(curve(0.69, 0.60), curve(0.69, 0.50, seed=2))
    # Straight lines at three quarters of the way: 0.69 - 0.75 * 0.09 = 0.6225 and 0.69 - 0.75 * 0.19 = 0.5475.
    assert "after 102,400 examples" in said
    assert "clearly worse" in said
    assert float(said.split()[1]) == pytest.approx(0.6225, abs=0.005)


@pytest.mark.parametrize(
    ("mine", "reference"),
    [
        (curve(0.69, 0.50), curve(0.69, 0.50, seed=2)),
        (curve(0.69, 0.45), curve(0.69, 0.50, seed=2)),
        # It has seen half as many examples: compared where both have been, it is as good.
        (curve(0.69, 0.595, count=50), curve(0.69, 0.50, seed=2)),
        (curve(0.69, 0.60, count=6), curve(0.69, 0.50, count=6)),
        ([], curve(0.69, 0.50)),
    ],
)
def test_what_is_not_clearly_worse_is_not_marked(mine: Any, reference: Any) -> None:
    assert clearly_worse(mine, reference) == ""
