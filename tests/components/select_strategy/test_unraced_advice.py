"""What is not raced, rule by rule: the plan and what it stands on in, the plan with its input mode, precision and rate out."""

from dataclasses import replace
from typing import Any

import pytest

from components.instances import read_instances
from components.measurements import MachineUse
from components.plan import ModelSettings, Plan, Strategy, Threads
from components.select_strategy.advice import Ground, advised, has_sixteen_bits
from components.select_strategy.cost_model import Candidate
from components.select_strategy.work import Work

CATALOGUE = read_instances()
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

GROUND = Ground(
    work=SMALL,
    encoding="blocks",
    train_bytes=20e9,
    in_s3=True,
    link_bytes_per_s=781_250_000.0,
    volume_bytes=30e9,
    sixteen_bits=True,
    asked=True,
)

SERVERS = Plan(strategy="parameter_server", instance_count=2, measured_examples_per_s=1e5)


def horovod(workers: int, rate: float = 100_000.0) -> Plan:
    return Plan(strategy="horovod", workers_per_host=workers, measured_examples_per_s=rate)


@pytest.mark.parametrize(
    ("plan", "ground", "mode", "says"),
    [
        # 20 GB at the volume's 134 MB/s are 149 s, training 100 million rows at 100,000 a second takes 1,000 s.
        (horovod(4), {}, "Pipe", "Pipe, 4 channels: one for each worker of a host"),
        (Plan(strategy="single", measured_examples_per_s=1e5), {}, "Pipe", "Pipe, 1 channel: one for each worker of a host"),
        # 8 GB take 60 s: under a tenth of the training, and of one at a fifth of the speed all the more.
        (horovod(4), {"train_bytes": 8e9}, "FastFile", "the download is short"),
        (horovod(4, 20_000.0), {}, "FastFile", "the download is short"),
        # Ten epochs read what was downloaded once.
        (horovod(4), {"work": replace(SMALL, epochs=10, shards=4)}, "FastFile", "the download is short"),
        # 1 GB is there in 7 s, which nobody waits for, however short the training.
        (horovod(4, 1e8), {"train_bytes": 1e9}, "FastFile", "the download is short"),
        # 25 GB and 24 of room: training that takes long enough for the download still has no disk for it.
        (horovod(4, 10_000.0), {"train_bytes": 25e9}, "Pipe", "Pipe, 4 channels"),
        # A link slower than the disk decides: 8 GB at 25 MB/s are 320 s.
        (horovod(4), {"train_bytes": 8e9, "link_bytes_per_s": 25e6}, "Pipe", "Pipe, 4 channels"),
        # What cannot be read from a pipe, as plan_jobs.py refuses it.
        (horovod(4), {"in_s3": False}, "FastFile", "the data lies on this machine"),
        (horovod(4), {"encoding": "libsvm"}, "FastFile", "libsvm text"),
        (horovod(8), {}, "FastFile", "4 shards for 8 workers a host"),
        (horovod(32), {"work": replace(SMALL, shards=64)}, "FastFile", "a job has channels for 16"),
        (
            Plan(strategy="parameter_server", instance_count=2, measured_examples_per_s=1e5),
            {},
            "FastFile",
            "parameter servers read",
        ),
    ],
)
def test_a_long_download_is_streamed_by_a_channel_for_each_worker(plan: Plan, ground: dict[str, Any], mode: str, says: str) -> None:
    found = advised(plan, replace(GROUND, **{"work": replace(SMALL, shards=4), **ground}))
    rung = next(one for one in found.rungs if one.name == "input mode")
    assert (found.input_mode, rung.passed) == (mode, mode == "Pipe")
    assert says in rung.decision


@pytest.mark.parametrize(
    ("products", "sixteen_bits", "asked", "mixed", "says"),
    [
        (1.02e6, True, True, True, "large enough to gain"),
        (1.02e6, None, True, True, "large enough to gain"),
        (1.02e6, True, False, False, "--mixed-precision would be faster here"),
        (1.02e6, None, False, False, "float32, as set"),
        (1.02e6, False, True, False, "neither bfloat16 instructions nor a GPU"),
        (0.2e6, True, True, False, "too small"),
        (0.2e6, True, False, False, "too small"),
    ],
)
def test_mixed_precision_only_for_large_models_where_the_machine_has_it(
    products: float, sixteen_bits: bool | None, asked: bool, mixed: bool, says: str
) -> None:
    ground = replace(GROUND, work=replace(SMALL, products=products), sixteen_bits=sixteen_bits, asked=asked)
    found = advised(replace(horovod(2), mixed_precision=asked), ground)
    assert found.mixed_precision is mixed
    assert says in next(one for one in found.rungs if one.name == "precision").decision


@pytest.mark.parametrize(
    ("seen", "name", "has"),
    [
        # Ice Lake has no bfloat16 and Sapphire Rapids has; a T4 multiplies float16; nothing is known of what is no catalogue's.
        (None, "ml.c6i.4xlarge", False),
        (None, "ml.c7i.4xlarge", True),
        (None, "ml.g4dn.xlarge", True),
        (None, "local", None),
        # What the probes saw is believed before what the type's name says.
        ({"bfloat16": False}, "ml.c7i.4xlarge", False),
        ({"bfloat16": True}, "local", True),
        ({"bfloat16": False, "gpu_percent_p95": 50.0}, "local", True),
        # A profile of before, whose probes did not look.
        ({}, "local", None),
    ],
)
def test_who_multiplies_in_16_bits(seen: dict[str, Any] | None, name: str, has: bool | None) -> None:
    instance = next((one for one in CATALOGUE if one.name == name), None)
    machine = None if seen is None else MachineUse(own_cpus=1.0, other_cpus=0.0, **seen)
    assert has_sixteen_bits(machine, instance) is has


@pytest.mark.parametrize(
    ("strategy", "hosts", "set_to", "factor"),
    [
        # A gradient of one of n workers that do not wait is n updates old on average, and is taken for 1/n.
        ("parameter_server", 2, 1.0, 0.5),
        ("parameter_server", 8, 1.0, 0.125),
        # Alone there is nobody to be late for.
        ("parameter_server", 1, 1.0, 1.0),
        # Synchronous workers are never late; what a person sets is kept.
        ("horovod", 2, 1.0, 1.0),
        ("horovod", 2, 2.0, 2.0),
        ("parameter_server", 2, 0.7, 0.7),
    ],
)
def test_old_gradients_lower_the_learning_rate_of_the_plan(strategy: Strategy, hosts: int, set_to: float, factor: float) -> None:
    settings = ModelSettings(learning_rate_factor=set_to)
    candidate = Candidate(strategy=strategy, hosts=hosts, threads=Threads(), predicted_examples_per_s=1e5, basis="")
    assert candidate.plan(settings).learning_rate_factor == factor
    plan = advised(candidate.plan(settings), GROUND)
    said = [one.decision for one in plan.rungs if one.name == "learning rate"]
    stale = strategy == "parameter_server" and hosts > 1
    assert [one.split(",")[0] for one in said] == ([f"times {factor:g}"] if stale else [])
