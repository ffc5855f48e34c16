"""The profile's file, and what is refused instead of being read as a measurement."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidConfig, TrainingJobFailed
from components.measurements import Finding, InputSettings, MachineUse
from components.plan import ModelSettings, Threads
from components.profile import Probe, Profile, read_profile, write_profile
from components.training_results import read_training_result

PROBE = Probe(
    kind="both",
    strategy="single",
    hosts=1,
    workers_per_host=1,
    batch_size=1024,
    threads=Threads(intra_op=2),
    examples_per_s=50_000.5,
    step_p50_s=0.02,
    step_p90_s=0.03,
    step_p99_s=0.04,
    input_wait_share=0.1,
    compute_share=0.9,
    communication_share=0.0,
    cpu_percent_per_core=(99.0, 81.5),
    rss_bytes=2**30,
    usable_cpus=2,
    usable_cpus_source="host",
    job_name="job",
    job_s=8.25,
    rate_low=49_000.0,
    rate_high=51_001.0,
    warmup_steps=12,
    bytes_per_step=4096.0,
    rank_skew=0.125,
    input=InputSettings(encoding="blocks", prefetch_batches=4, cached=True),
    machine=MachineUse(own_cpus=1.75, other_cpus=0.25, iowait_percent=0.5, memory_used_bytes=2**31, memory_bytes=2**33),
)
FINDING = Finding(rule="IOBottleneck", found=False, number=0.5, threshold=50.0, unit="%", says="no", advice="none")
PROFILE = Profile(
    data_digest="d",
    dataset="/data",
    train_examples=1000,
    settings=ModelSettings(deep_layers=(8,)),
    probe_s=2.0,
    probes=(PROBE,),
    findings=(FINDING,),
    expected_s=45.0,
    cost_s=44.5,
)

# The fields of training.json as the training program writes them, with figures made up here.
TRAINING = {
    "strategy": "horovod",
    "world_size": 2,
    "workers_per_host": 2,
    "hosts": 1,
    "batch_size": 512,
    "steps": 50,
    "examples": 51200,
    "startup_s": 6.5,
    "train_s": 2.0,
    "examples_per_s": 25600.0,
    "step_time_s": {"p50": 0.04, "p90": 0.05, "p99": 0.06},
    "input_wait_share": 0.1,
    "compute_share": 0.7,
    "communication_share": 0.2,
    "final_loss": 0.5,
    "losses": [[1, 0.7], [50, 0.5]],
    "cpu_percent_per_core": [90.0, 95.0],
    "rss_bytes": 1000,
    "usable_cpus": 2,
    "usable_cpus_source": "host",
    "probe": "none",
    "ranks": [],
    "stopped_early": False,
    "rate_low": 25000.0,
    "rate_high": 26200.0,
    "warmup_steps": 5,
    "outlier_share": 0.01,
    "parameter_server_share": None,
    "sent_bytes_per_step": 4096.0,
    "rank_skew": 0.125,
    "encoding": "blocks",
    "rows_cached": True,
    "machine": {"own_cpus": 1.5, "other_cpus": 0.25},
    "parts": {"input": {"examples_per_s": 99000.0, "machine": None}},
}


def test_a_profile_is_the_same_after_its_file(tmp_path: Path) -> None:
    write_profile(tmp_path / "profile.json", PROFILE)
    assert read_profile(tmp_path / "profile.json") == PROFILE


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("format_version", 0, "format_version"),
        ("probe_s", "2", "probe_s"),
        ("settings", {}, "settings"),
        ("probes", [{}], "probes"),
        ("probes", 3, "probes"),
        ("findings", 3, "findings"),
        ("findings", [{"rule": "Horoscope"}], "Horoscope"),
        ("extra", 1, "extra"),
    ],
)
def test_a_damaged_profile_is_refused_with_file_and_name(tmp_path: Path, key: str, value: Any, named: str) -> None:
    path = tmp_path / "profile.json"
    write_profile(path, PROFILE)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(InvalidConfig) as error:
        read_profile(path)
    assert str(path) in str(error.value)
    assert named in str(error.value)


def test_a_rate_that_cannot_be_measured_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(path, PROFILE)
    path.write_text(path.read_text().replace("50000.5", "0"))
    with pytest.raises(InvalidConfig, match="cannot have been measured"):
        read_profile(path)


def test_a_missing_profile_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="ctrflow profile"):
        read_profile(tmp_path / "profile.json")


def test_cpu_time_of_others_is_not_this_jobs() -> None:
    assert (PROBE.busy_cores, PROBE.utilization) == (1.75, 0.875)
    assert replace(PROBE, machine=None).busy_cores == pytest.approx(1.805)
    assert replace(PROBE, hosts=2).busy_cores == pytest.approx(1.805)


def test_training_figures_are_read(tmp_path: Path) -> None:
    path = tmp_path / "training.json"
    path.write_text(json.dumps(TRAINING))
    result = read_training_result(path, job="job-1")
    assert (result.steps, result.examples_per_s, result.step_p90_s, result.losses[-1]) == (50, 25600.0, 0.05, (50, 0.5))
    assert result.machine == MachineUse(own_cpus=1.5, other_cpus=0.25)
    part = result.parts["input"]
    assert (part.examples_per_s, part.machine, part.encoding, part.parts) == (99000.0, None, "blocks", {})


DAMAGE = ({"steps": None}, {"step_time_s": 1}, {"parts": []}, {"machine": {"horsepower": 1}})


@pytest.mark.parametrize("text", [None, "", "[]", "{}", *(json.dumps({**TRAINING, **damage}) for damage in DAMAGE)])
def test_a_job_without_its_figures_has_failed(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "training.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(TrainingJobFailed, match="job-1"):
        read_training_result(path, job="job-1")
