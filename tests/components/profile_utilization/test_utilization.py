"""What a profile tries, and what it says about its measurements."""

from dataclasses import replace

import pytest

from components.errors import InvalidConfig
from components.plan import ModelSettings, ProbeKind, Threads
from components.probes import Probe, Profile, fastest
from components.profile_utilization.step import ProfileConfig
from components.profile_utilization.utilization import another_fits, findings, thread_candidates


def measured(kind: ProbeKind, rate: float, *, intra_op: int = 0, cores: tuple[float, ...] = (100.0, 80.0)) -> Probe:
    return Probe(
        kind=kind,
        strategy="single",
        hosts=1,
        workers_per_host=1,
        batch_size=1024,
        threads=Threads(intra_op=intra_op),
        examples_per_s=rate,
        step_p50_s=0.02,
        step_p90_s=0.03,
        step_p99_s=0.04,
        input_wait_share=0.25,
        compute_share=0.75,
        communication_share=0.0,
        cpu_percent_per_core=cores,
        rss_bytes=3 * 2**29,
        usable_cpus=2,
        usable_cpus_source="affinity mask",
        job_name="job",
        job_s=8.0,
    )


def profile(*probes: Probe) -> Profile:
    return Profile(data_digest="d", dataset="/data", train_examples=1000, settings=ModelSettings(), probe_s=2.0, probes=probes)


@pytest.mark.parametrize(
    ("usable_cpus", "intra_op"),
    [(1, [1]), (1.5, [1]), (2, [1, 2]), (3, [1, 3]), (8, [4, 8]), (96, [48, 96])],
)
def test_threads_tried_are_half_the_cpus_and_all_of_them(usable_cpus: float, intra_op: list[int]) -> None:
    assert [threads.intra_op for threads in thread_candidates(usable_cpus)] == intra_op


def test_threads_are_bound_on_physical_cores_and_free_on_all_cpus() -> None:
    # Article, item 1: compact binding tops out at the physical cores; `disabled` also uses hyper-threads.
    half, every = thread_candidates(8)
    assert (half.kmp_affinity, every.kmp_affinity) == ("granularity=fine,compact,1,0", "disabled")


@pytest.mark.parametrize(
    ("job_seconds", "budget_s", "fits"),
    [([], 1.0, True), ([8.0, 8.0, 8.0], 32.0, True), ([8.0, 8.0, 8.0], 31.9, False), ([20.0, 5.0], 44.0, False)],
)
def test_another_probe_runs_only_when_the_longest_so_far_would_fit(job_seconds: list[float], budget_s: float, fits: bool) -> None:
    assert another_fits(job_seconds, budget_s) is fits


def test_findings_carry_their_numbers() -> None:
    text = "\n".join(findings(profile(measured("both", 50_000.0), measured("compute", 60_000.0), measured("input", 480_000.0))))
    assert "480,000 examples/s, 8.0 times what compute alone takes (60,000)" in text
    assert "25% of a step waiting for input: the input pipeline keeps up" in text
    # 100 % + 80 % of one core each are 1.8 cores, 90 % of two.
    assert "1.8 of 2 usable CPUs are busy (90%; usable by affinity mask): one process fills the machine" in text
    assert "1,536 MiB" in text


def test_findings_name_a_slow_input_pipeline() -> None:
    text = findings(profile(measured("both", 50_000.0), measured("compute", 60_000.0), measured("input", 61_000.0)))[0]
    assert "the input pipeline limits training" in text


@pytest.mark.parametrize(
    ("rate", "says"),
    [(52_000.0, "None of 2 thread settings beats default threads"), (60_000.0, "fastest: 60,000 examples/s, 20% more")],
)
def test_findings_do_not_take_noise_for_gain(rate: float, says: str) -> None:
    probes = (measured("both", 50_000.0), measured("compute", 1.0), measured("input", 1.0), measured("both", rate, intra_op=1))
    assert any(says in sentence for sentence in findings(profile(*probes)))


def test_cpu_use_beyond_the_usable_cpus_is_not_ours() -> None:
    crowded = replace(measured("both", 1.0), cpu_percent_per_core=(100.0,) * 8)
    assert (crowded.busy_cores, crowded.utilization) == (2.0, 1.0)


def test_unsampled_cpu_use_is_said_and_not_taken_for_idle() -> None:
    text = findings(profile(measured("both", 1.0, cores=()), measured("compute", 1.0), measured("input", 1.0)))[1]
    assert "not sampled" in text


def test_no_probe_is_no_measurement() -> None:
    with pytest.raises(InvalidConfig, match="ctrflow profile"):
        fastest(())


def test_a_probe_longer_than_the_budget_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="probe_s"):
        ProfileConfig(budget_s=1.0, probe_s=2.0)
