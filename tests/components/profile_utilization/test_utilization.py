"""What a profile says about its measurements."""

from dataclasses import replace

import pytest

from components.errors import InvalidConfig
from components.measurements import MachineUse
from components.plan import ModelSettings, ProbeKind, Threads
from components.profile import Probe, Profile, fastest
from components.profile_utilization.report import profile_page
from components.profile_utilization.rules import findings
from components.profile_utilization.step import ProfileConfig
from components.profile_utilization.utilization import overlap, sentences, warnings


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


COMPUTE, SOURCE = measured("compute", 60_000.0), measured("input", 480_000.0)
BASIC = profile(measured("both", 50_000.0), COMPUTE, SOURCE)


def machine(**figures: float) -> MachineUse:
    return MachineUse(**{"own_cpus": 1.0, "other_cpus": 0.0, **figures})  # type: ignore[arg-type]


def on_gpu(p95: float, p5: float) -> Probe:
    return replace(measured("both", 1.0), machine=machine(gpu_percent_p95=p95, gpu_percent_p5=p5))


def test_sentences_carry_their_numbers() -> None:
    text = "\n".join(sentences(BASIC))
    assert "480,000 examples/s, 8.0 times what compute alone takes (60,000)" in text
    assert "25% of a step waiting for input: the input pipeline keeps up" in text
    assert "A step of 20.0 ms is 25% waiting for input, 75% computing, 0% communicating." in text
    # 100 % + 80 % of one core each are 1.8 cores, 90 % of two.
    assert "1.8 of 2 usable CPUs are busy (90%; usable by affinity mask): one process fills the machine" in text
    assert "1,536 MiB" in text


def test_a_slow_input_pipeline_is_named() -> None:
    text = sentences(profile(measured("both", 50_000.0), COMPUTE, measured("input", 61_000.0)))[0]
    assert "the input pipeline limits training" in text


@pytest.mark.parametrize(
    ("source", "compute", "both", "hidden"),
    [
        # 10 us and 20 us an example: 20 us together is perfect, 30 us is one after the other.
        (100_000.0, 50_000.0, 50_000.0, 1.0),
        (100_000.0, 50_000.0, 1e6 / 30, 0.0),
        (50_000.0, 100_000.0, 40_000.0, 0.5),
        # Slower together than one after the other, or faster than either: noise.
        (100_000.0, 50_000.0, 20_000.0, 0.0),
        (100_000.0, 50_000.0, 60_000.0, 1.0),
        # 1 us of 20: lost in noise.
        (1_100_000.0, 50_000.0, 50_000.0, None),
    ],
)
def test_overlap_is_the_share_of_the_shorter_part_that_is_hidden(
    source: float, compute: float, both: float, hidden: float | None
) -> None:
    found = overlap(measured("input", source), measured("compute", compute), measured("both", both))
    assert found == (None if hidden is None else pytest.approx(hidden))
    said = next(each for each in sentences(replace(BASIC, overlap=found)) if "refetching" in each)
    assert ("nothing for prefetching to hide" in said) if hidden is None else (f"hides {hidden:.0%}" in said)


@pytest.mark.parametrize(
    ("rate", "says"),
    [(52_000.0, "None of 2 thread settings beats default threads"), (60_000.0, "fastest: 60,000 examples/s, 20% more")],
)
def test_noise_is_not_taken_for_gain(rate: float, says: str) -> None:
    probes = (measured("both", 50_000.0), measured("compute", 1.0), measured("input", 1.0), measured("both", rate, intra_op=1))
    assert any(says in sentence for sentence in sentences(profile(*probes)))


def test_other_processes_that_took_cpus_are_said() -> None:
    disturbed = replace(measured("both", 50_000.0), machine=machine(other_cpus=0.5))
    assert any("Other processes took CPUs meanwhile" in said for said in warnings(profile(disturbed, COMPUTE, SOURCE)))
    quiet = replace(disturbed, machine=machine(other_cpus=0.1), rate_low=1.0, rate_high=2.0)
    assert warnings(profile(quiet)) == ()


@pytest.mark.parametrize(
    ("probe", "rule", "found", "number"),
    [
        # 1.8 of 2 CPUs are 90 %.
        (measured("both", 50_000.0), "CPUBottleneck", True, 90.0),
        (measured("both", 50_000.0, cores=(100.0, 70.0)), "CPUBottleneck", False, 85.0),
        (replace(measured("both", 1.0), machine=machine(own_cpus=1.9, gpu_percent_p95=9.0)), "CPUBottleneck", True, 95.0),
        (replace(measured("both", 1.0), machine=machine(own_cpus=1.9, gpu_percent_p95=60.0)), "CPUBottleneck", False, 95.0),
        (measured("both", 50_000.0), "IOBottleneck", False, 25.0),
        (replace(measured("both", 50_000.0), input_wait_share=0.5), "IOBottleneck", True, 50.0),
        (replace(measured("both", 50_000.0), machine=machine(iowait_percent=62.5)), "IOBottleneck", True, 62.5),
        (
            replace(measured("both", 1.0), machine=machine(gpu_percent_p95=69.0, gpu_percent_p5=9.0)),
            "LowGPUUtilization",
            True,
            69.0,
        ),
        (
            replace(measured("both", 1.0), machine=machine(gpu_percent_p95=69.0, gpu_percent_p5=20.0)),
            "LowGPUUtilization",
            False,
            69.0,
        ),
        (replace(measured("both", 1.0), outlier_share=0.02), "StepOutlier", True, 2.0),
        (replace(measured("both", 1.0), outlier_share=0.0013), "StepOutlier", False, 0.13),
    ],
)
def test_rules_hold_a_number_against_a_threshold(probe: Probe, rule: str, found: bool, number: float) -> None:
    finding = next(each for each in findings(profile(probe, COMPUTE, SOURCE)) if each.rule == rule)
    assert (finding.found, finding.number) == (found, pytest.approx(number))
    assert (finding.advice == "none") is not found


def test_a_larger_batch_is_advised_when_it_was_faster_by_more_than_noise() -> None:
    faster = replace(measured("both", 60_000.0), batch_size=2048)
    finding = next(each for each in findings(replace(BASIC, trials=(faster,))) if each.rule == "BatchSize")
    assert (finding.found, finding.number, finding.threshold) == (True, pytest.approx(20.0), 5.0)
    assert finding.advice.startswith("--batch-size 2048")
    slower = replace(faster, examples_per_s=52_000.0)
    assert not next(each for each in findings(replace(BASIC, trials=(slower,))) if each.rule == "BatchSize").found


def test_workers_that_compute_unequally_long_are_named() -> None:
    lame = replace(measured("both", 60_000.0), strategy="horovod", workers_per_host=2, rank_skew=0.6)
    finding = next(each for each in findings(replace(BASIC, scaling=(lame,))) if each.rule == "LoadBalancing")
    assert (finding.found, finding.number, finding.threshold) == (True, 0.6, 0.5)


def test_what_was_not_looked_at_is_no_finding() -> None:
    assert {each.rule for each in findings(BASIC)} == {"CPUBottleneck", "IOBottleneck"}


def test_cpu_use_beyond_the_usable_cpus_is_not_ours() -> None:
    crowded = replace(measured("both", 1.0), cpu_percent_per_core=(100.0,) * 8)
    assert (crowded.busy_cores, crowded.utilization) == (2.0, 1.0)


def test_unsampled_cpu_use_is_said_and_not_taken_for_idle() -> None:
    known = profile(measured("both", 1.0, cores=()), measured("compute", 1.0), measured("input", 1.0))
    assert any("not sampled" in said for said in sentences(known))
    assert all(each.rule != "CPUBottleneck" for each in findings(known))


def test_the_report_says_what_probing_cost_and_what_was_left_out() -> None:
    known = replace(BASIC, findings=findings(BASIC), expected_s=180.0, expected_usd=0.05, cost_s=171.0, cost_usd=0.0475)
    text = profile_page(known, ["horovod with 2 hosts"]).html()
    assert "Expected at most 180 s, USD 0.05." in text
    assert "It took 171 s, USD 0.05." in text
    assert "Not tried, the budget was used up: horovod with 2 hosts." in text
    assert "CPUBottleneck" in text


def test_no_probe_is_no_measurement() -> None:
    with pytest.raises(InvalidConfig, match="ctrflow profile"):
        fastest(())


@pytest.mark.parametrize("settings", [{"budget_s": 1.0, "probe_s": 2.0}, {"probe_s": 0.0}, {"precision": 1.0}])
def test_settings_that_measure_nothing_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InvalidConfig, match=next(reversed(settings))):
        ProfileConfig(**settings)  # type: ignore[arg-type]
