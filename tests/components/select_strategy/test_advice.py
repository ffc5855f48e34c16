"""The article's advice, rule by rule: what was measured on one machine of the catalogue in, where to train out. No job runs."""

from dataclasses import replace
from typing import Any

import pytest

from components.errors import InvalidConfig
from components.instances import Instance, read_instances
from components.plan import ModelSettings, Strategy
from components.select_strategy.climb import Climb, Footing, climb
from components.select_strategy.elsewhere import hosts_to_weigh
from components.select_strategy.limits import Limits
from components.select_strategy.machines import host_of
from components.select_strategy.options import Option, Situation, option, timed
from components.select_strategy.ranking import in_order, weigh
from components.select_strategy.scaling import Estimate, Point, Setup, fit, predict
from components.select_strategy.step import SelectConfig
from components.select_strategy.work import Work

CATALOGUE = read_instances()
HERE = next(one for one in CATALOGUE if one.name == "ml.c7i.4xlarge")
SMALL = Work(
    fields=39,
    cells=39 * 33,
    products=1e6,
    dense_parameters=170_000,
    table_rows=117_581,
    row_parameters=33,
    table_bytes=4.0 * 117_581 * 33 * 3,
    distinct_ids_by_field=(3_000,) * 39,
    train_examples=100_000_000,
    epochs=1,
)


def weighed(
    limits: Limits, *, work: Work = SMALL, busy: float = 0.95, input_per_s: float = 1e8, gpu_percent: float | None = None
) -> tuple[Climb, tuple[Option, ...]]:
    """The climb after a machine of 16 vCPUs trained 200,000 examples a second at batch 4096, with one process."""
    here = host_of(HERE, HERE)
    measured = Point(setup=Setup(strategy="single", batch_size=4096, cores=here.cores), step_s=4096 / 200_000)
    one_core = Point(setup=Setup(strategy="single", batch_size=4096, cores=1.0), step_s=4096 / 30_000)
    scaling = fit([measured, one_core], work)
    names: tuple[Strategy, ...] = ("single", "horovod", "parameter_server")
    situation = Situation(
        work=work,
        settings=ModelSettings(batch_size=4096),
        scalings=dict.fromkeys(names, scaling),
        measured=("horovod", "parameter_server"),
        here=here,
        input_per_s=input_per_s,
        startup_s=60.0,
        limits=limits,
        gpu_percent=gpu_percent,
    )
    rate = Estimate(examples_per_s=200_000.0, low=195_000.0, high=205_000.0, busy=busy)
    mine = timed(replace(option(situation, "single", here, 1, 1), estimate=rate, raced=True), situation)
    hosts = [host_of(one, HERE) for one in hosts_to_weigh(limits, CATALOGUE, HERE)]
    others = [one for one in weigh(situation, hosts) if (one.host.name, one.hosts, one.strategy) != (HERE.name, 1, "single")]
    ranking = in_order([mine, *others], limits)
    keeps_up = input_per_s >= 1.2 * 200_000
    return climb(ranking, Footing(input_keeps_up=keeps_up, utilization=busy, here=mine), limits), ranking


@pytest.mark.parametrize(
    ("limits", "situation", "hosts", "larger"),
    [
        # Input-bound: whatever else is allowed, nothing is bought before the input is mended.
        ({"families": ("c7i",), "most_hosts": 64}, {"input_per_s": 210_000.0}, 1, False),
        # Under 90 %: this rung is tuned, a larger machine would be as idle.
        ({"families": ("c7i",), "most_hosts": 64}, {"busy": 0.6}, 1, False),
        # Full: up, as long as one host is allowed.
        ({"families": ("c7i",), "most_hosts": 1}, {}, 1, True),
        # Full, and larger ones are too expensive an hour.
        ({"families": ("c7i",), "most_hosts": 1, "most_usd_per_hour": 1.0}, {}, 1, False),
    ],
)
def test_up_only_when_this_rung_is_full(limits: dict[str, Any], situation: dict[str, float], hosts: int, larger: bool) -> None:
    chosen = weighed(Limits(**limits), **situation)[0].chosen  # type: ignore[arg-type]
    assert (chosen.hosts, chosen.host.vcpus > HERE.vcpus) == (hosts, larger)


def test_input_comes_before_anything() -> None:
    rung = weighed(Limits(families=("c7i",)), input_per_s=210_000.0)[0].rungs[0]
    assert rung.decision.startswith("mend the input pipeline first")
    assert not rung.passed


@pytest.mark.parametrize("family", ["p3", "p3dn"])
def test_retired_types_are_never_weighed(family: str) -> None:
    assert hosts_to_weigh(Limits(families=(family,)), CATALOGUE, HERE) == (HERE,)


def test_what_has_no_capacity_is_never_weighed() -> None:
    names = [one.name for one in hosts_to_weigh(Limits(families=("c7i",), unavailable=("ml.c7i.48xlarge",)), CATALOGUE, HERE)]
    assert "ml.c7i.24xlarge" in names
    assert "ml.c7i.48xlarge" not in names


@pytest.mark.parametrize("gpu_percent", [None, 35.0])
def test_a_gpu_that_cannot_be_filled_is_refused_and_a_cpu_taken(gpu_percent: float | None) -> None:
    found, ranking = weighed(Limits(families=("g5", "c7i"), most_hosts=1), gpu_percent=gpu_percent)
    on_gpu = [one for one in ranking if one.host.gpus]
    assert on_gpu
    assert all("cannot be filled" in one.refused for one in on_gpu)
    assert found.chosen.host.gpus == 0


def test_small_batches_do_not_fill_a_gpu_though_cpus_showed_no_overhead() -> None:
    """Steps that are all work on CPUs: kernels of 32 rows a GPU still take longer to start than to run."""
    here = host_of(HERE, HERE)
    points = [Point(setup=Setup(strategy="single", batch_size=1024, cores=cores), step_s=0.2 / cores) for cores in (1.0, 10.0)]
    situation = Situation(
        work=SMALL,
        settings=ModelSettings(batch_size=1024),
        scalings={"single": fit(points, SMALL)},
        measured=(),
        here=here,
        input_per_s=1e9,
        startup_s=60.0,
        limits=Limits(),
    )
    eight = host_of(next(one for one in CATALOGUE if one.name == "ml.g5.48xlarge"), HERE)
    assert "cannot be filled" in option(situation, "horovod", eight, 4, 8).refused


def test_a_table_too_large_for_one_host_goes_to_servers_or_is_sharded() -> None:
    """60 GB of rows and slots on hosts of 32 GiB: no replica fits, parts of it do."""
    big = replace(SMALL, table_rows=150_000_000, table_bytes=60e9)
    ranking = weighed(Limits(most_hosts=8), work=big)[1]
    free = [one for one in ranking if not one.refused and not one.raced]
    assert free
    assert {one.placement if one.strategy == "horovod" else one.strategy for one in free} == {"sharded", "parameter_server"}
    assert min(one.hosts for one in free) == 4


def test_small_dense_models_go_to_horovod_on_several_workers() -> None:
    """A small table and many products: of plans on two hosts Horovod sends less than servers would."""
    dense = replace(
        SMALL, products=1e7, dense_parameters=1_600_000, table_rows=1_000, table_bytes=4e5, distinct_ids_by_field=(25,) * 39
    )
    ranking = weighed(Limits(most_hosts=2), work=dense)[1]
    assert next(one for one in ranking if one.hosts == 2 and not one.refused).strategy == "horovod"


def test_what_was_not_measured_says_so_and_is_cheaper_or_faster_at_its_low_bound() -> None:
    found, ranking = weighed(Limits(families=("c7i",), most_hosts=1))
    mine = next(one for one in ranking if one.raced)
    assert found.chosen.rests_on_a_guess
    assert found.chosen.slow_epoch_s < mine.epoch_s
    assert found.alternatives
    assert not mine.rests_on_a_guess


def test_the_cheapest_costs_no_more_than_what_was_measured() -> None:
    found, ranking = weighed(Limits(objective="cost", families=("c7i", "c5", "m5"), most_hosts=8))
    mine = next(one for one in ranking if one.raced)
    # 0.857 USD an hour for 60 s and 100 million examples at 200,000 a second: 560 s.
    assert mine.epoch_usd == pytest.approx(0.857 * 560 / 3600)
    assert found.chosen.epoch_usd is not None
    assert found.chosen.epoch_usd <= 0.857 * 560 / 3600


def test_a_deadline_is_kept_or_its_breach_is_said() -> None:
    met = weighed(Limits(objective="cost_within_deadline", deadline_s=2_000.0))[0]
    assert met.chosen.slow_training_s <= 2_000.0
    missed = weighed(Limits(objective="cost_within_deadline", deadline_s=61.0))[0]
    assert "nothing admitted is sure to meet the deadline of 61 s" in missed.rungs[-1].decision


def test_nothing_on_the_frontier_is_beaten_in_time_and_cost() -> None:
    ranking = weighed(Limits(families=("c7i", "c6i", "c5"), most_hosts=8))[1]
    free = [(one.epoch_s, one.epoch_usd or 0.0, one.frontier) for one in ranking if not one.refused]
    for seconds, usd, frontier in free:
        beaten = any((s <= seconds and u < usd) or (s < seconds and u <= usd) for s, u, _ in free)
        assert frontier != beaten


def test_who_lost_the_race_is_not_taken_for_its_rate() -> None:
    """Horovod was 2 % faster here, which is noise: the race chose the single process, and the climb keeps to it."""
    mine = next(one for one in weighed(Limits())[1] if one.raced)
    rival = replace(mine, strategy="horovod", workers_per_host=2, epoch_s=mine.epoch_s / 1.02)
    taken = climb((rival, mine), Footing(input_keeps_up=True, utilization=0.95, here=mine), Limits())
    assert taken.chosen == mine


def test_several_workers_are_not_predicted_above_so_many_single_processes() -> None:
    """A lucky measurement of Horovod, at 2.5 times one process: with twice the workers, twice is all that there can be."""
    alone = Point(setup=Setup(strategy="single", batch_size=1024, cores=1.0), step_s=0.02)
    lucky = Point(setup=Setup(strategy="horovod", workers_per_host=2, batch_size=1024, cores=1.0), step_s=0.02 / 1.25, sd=0.001)
    fits: dict[Strategy, Any] = {"single": fit([alone], SMALL), "horovod": fit([alone, lucky], SMALL)}
    assert fits["horovod"].estimate(lucky.setup).examples_per_s > 2 * fits["single"].estimate(alone.setup).examples_per_s
    assert predict(fits, lucky.setup).examples_per_s == pytest.approx(2 * fits["single"].estimate(alone.setup).examples_per_s)


def test_spot_costs_its_share() -> None:
    mine = [next(one for one in weighed(Limits(spot=spot))[1] if one.raced) for spot in (False, True)]
    assert (mine[1].epoch_usd or 0) == pytest.approx(0.4 * (mine[0].epoch_usd or 0))


def test_the_catalogue_has_the_machine_that_the_tests_stand_on() -> None:
    assert isinstance(HERE, Instance)
    assert (HERE.vcpus, HERE.physical_cores) == (16, 8)


def test_a_demanded_strategy_leaves_limits_nothing_to_choose() -> None:
    assert SelectConfig(force="horovod").force == "horovod"
    with pytest.raises(InvalidConfig, match="strategy 'horovod' is demanded, so that limits"):
        SelectConfig(force="horovod", limits=Limits(objective="cost"))


def test_a_plan_for_other_machines_has_the_factor_too() -> None:
    servers = next(one for one in weighed(Limits(most_hosts=8))[1] if (one.strategy, one.hosts) == ("parameter_server", 4))
    assert servers.plan(ModelSettings(), spot=False).learning_rate_factor == 0.25
