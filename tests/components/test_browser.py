"""Pages of steps in a real browser, over Chromium's debugging pipe: nothing in its console, and readable at 1280 pixels."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.drift import Drift, FieldDrift
from components.evaluate.metrics import calibration, measure, precision_recall_points, roc_points, score_histogram, sums_of
from components.evaluate.ranking import ranked
from components.evaluate.report import evaluation_page
from components.evaluation import ChampionScore, Evaluation, Slice
from components.manifest import Manifest, Split, Statistics
from components.model_files import ModelCard
from components.plan import ModelSettings, ProbeKind, Threads
from components.profile import Probe, Profile
from components.profile_utilization.report import profile_page
from components.profile_utilization.rules import findings
from components.records import Schema
from components.reports import Page, write_report
from components.select_strategy.cost_model import candidates, shortlist
from components.select_strategy.ladder import Measured, select
from components.select_strategy.report import page as plan_page

WIDTH, HEIGHT = 1280, 800


def full_evaluation() -> Evaluation:
    """Everything that a page may show, with values as wide as they come."""
    random = np.random.default_rng(1)
    scores = random.beta(1.0, 30.0, 20_000).astype(np.float32)
    labels = (random.random(20_000) < scores).astype(np.float32)
    ranking, sums = ranked(labels, scores), sums_of(labels, scores)
    metrics = measure(ranking, sums)
    part = Slice(
        field="a_column_with_a_long_name",
        value="https://example.org/" + "a" * 300,
        rows=123_456_789,
        positives=1,
        click_rate=0.00001,
        predicted=0.5,
        auc=None,
        auc_reason="no positive rows (0 of 123,456,789)",
        log_loss=0.4,
    )
    drift = Drift(
        champion_version=3,
        rows=123_456_789,
        champion_rows=120_000_000,
        click_rate=0.03,
        champion_click_rate=0.031,
        new_id_rate=0.01,
        fields=tuple(FieldDrift(field=f"C{number}", psi=0.01 * number, new_ids=0.001 * number) for number in range(39)),
    )
    return Evaluation(
        rows=sums.rows,
        positives=sums.positives,
        click_rate=sums.click_rate,
        auc=metrics.auc,
        auc_reason="",
        log_loss=metrics.log_loss,
        log_loss_reason="",
        normalized_entropy=metrics.normalized_entropy,
        constant_log_loss=metrics.constant_log_loss,
        model_digest="a" * 64,
        data_digest="d" * 64,
        champion=ChampionScore(
            version=3,
            auc=0.7,
            auc_reason="",
            log_loss=0.15,
            auc_difference=0.0021,
            auc_low=0.0013,
            auc_high=0.0029,
            p_value=0.0004,
            log_loss_difference=-0.001,
            log_loss_low=-0.002,
            log_loss_high=-0.0001,
        ),
        warnings=("3 rows rejected <script>alert('markup in a warning')</script>", "w" * 400),
        roc=tuple((x, y) for x, y, _ in roc_points(ranking)),
        calibration=calibration(ranking),
        calibration_ratio=metrics.calibration_ratio,
        average_precision=metrics.average_precision,
        precision_recall=precision_recall_points(ranking),
        score_histogram=score_histogram(ranking),
        slices=(part,) * 60,
        drift=drift,
    )


CARD = ModelCard(
    strategy="horovod",
    rank=0,
    world_size=8,
    step=1_000_000,
    examples=1_000_000_000,
    field_size=39,
    feature_size=200_052,
    id_base=0,
    data_digest="d" * 64,
    config={},
    parameter_checksum="00",
    ranks_agreed=True,
    metrics={},
    files=(),
    negative_sampling_rate=0.1,
)
BARE = replace(
    full_evaluation(),
    auc=None,
    auc_reason="deepfm on validation/part-00000.tfrecord, row 1: score is NaN, a probability in 0..1 is expected; train again",
    champion=None,
    roc=(),
    calibration=(),
    precision_recall=(),
    score_histogram=(),
    slices=(),
    drift=None,
)


def check(browser: Any, path: Path, page: Page, charts: int) -> str:
    """The text of the page, which is small, readable and complains of nothing."""
    write_report(path, page)
    browser.open(path)
    assert browser.complaints() == []
    assert path.stat().st_size < 1_000_000
    assert browser.value("document.documentElement.scrollWidth") <= WIDTH
    # Letters of at least 12 pixels, and no part of a chart outside of it.
    sizes = "[...document.querySelectorAll('p, td, th')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert min(browser.value(sizes)) >= 12
    inside = browser.value(
        "[...document.querySelectorAll('svg')].map(s => { const b = s.getBoundingClientRect();"
        " return [...s.querySelectorAll('text, polyline, rect')].every(t => { const r = t.getBoundingClientRect();"
        " return r.left >= b.left - 1 && r.right <= b.right + 1 && r.top >= b.top - 1 && r.bottom <= b.bottom + 1; }) })"
    )
    assert inside == [True] * charts
    return str(browser.value("document.body.innerText"))


@pytest.mark.parametrize("evaluation", [full_evaluation(), BARE], ids=["everything", "undefined"])
def test_an_evaluation_is_readable(browser: Any, tmp_path: Path, evaluation: Evaluation) -> None:
    text = check(browser, tmp_path / "report.html", evaluation_page("deepfm", evaluation, CARD), 4 if evaluation.auc else 0)
    if evaluation.auc:
        assert (
            "better than champion version 3 by 0.0021 ± 0.0008 AUC (95% interval); to say so would be wrong with p = 0.0004" in text
        )
        assert "<script>alert('markup in a warning')</script>" in text
    else:
        assert "row 1: score is NaN" in text


MANIFEST = Manifest(
    encoding="blocks",
    schema=Schema(field_size=39, feature_size=200_052),
    train=Split(examples=180_000_000, positives=6_000_000, shards=()),
    validation=Split(examples=1_000, positives=30, shards=()),
    statistics=Statistics(
        smallest_id=0,
        largest_id=200_051,
        smallest_value=0.0,
        largest_value=1.0,
        missing=0,
        click_rate=0.03,
        distinct_ids_by_field=(5_000,) * 39,
        validation_rows_in_train=0,
    ),
    sources=(),
    versions={},
)


def probe(kind: ProbeKind, rate: float, strategy: str = "single", threads: Threads | None = None) -> Probe:
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
        cpu_percent_per_core=(95.0,) * 64,
        rss_bytes=2**30,
        usable_cpus=64,
        usable_cpus_source="affinity of the process",
        job_name="job",
        job_s=8.0,
        rate_low=rate * 0.98,
        rate_high=rate * 1.02,
        outlier_share=0.02,
    )


BOUND = Threads(intra_op=64, inter_op=64, omp=64, kmp_affinity="granularity=fine,compact,1,0")
PROFILE = Profile(
    data_digest="d",
    dataset="/data/" + "a" * 200,
    train_examples=180_000_000,
    settings=ModelSettings(),
    probe_s=2.0,
    probes=(probe("both", 1_234_567.0), probe("both", 1_334_567.0, threads=BOUND), probe("compute", 1e6), probe("input", 5e6)),
    scaling=(probe("both", 900_000.0, "horovod"),),
    overlap=0.9,
    cost_s=170.0,
)


def test_a_profile_is_readable(browser: Any, tmp_path: Path) -> None:
    profile = replace(PROFILE, findings=findings(PROFILE))
    text = check(browser, tmp_path / "report.html", profile_page(profile, ("threads " + "x" * 200,)), 3)
    assert "1,334,567 examples/s with intra-op 64" in text
    assert "CPUBottleneck" in text


def test_a_plan_is_readable_and_its_ladder_has_the_numbers(browser: Any, tmp_path: Path) -> None:
    rates = {"single": 1_300_000.0, "horovod": 2_100_000.0, "parameter_server": 600_000.0}
    every = candidates(PROFILE)
    race = [Measured(candidate=one, probe=probe("both", rates[one.strategy], one.strategy)) for one in shortlist(every)]
    plan = select(PROFILE, race)
    page = plan_page(plan, MANIFEST, every, race, None, "ctrflow select profile plan")
    text = check(browser, tmp_path / "report.html", page, 2)
    assert "input alone 5,000,000 examples/s, compute alone 1,000,000: 5.0 times" in text
    assert "2,100,000 examples/s, 1.62 times one process's 1,300,000" in text
    assert all(rung.decision in text for rung in plan.rungs)
    assert "ctrflow select profile plan --strategy single" in text


def test_a_complaint_would_be_seen(browser: Any, tmp_path: Path) -> None:
    """The check itself: a page with an error, and with something to fetch, has complaints."""
    path = tmp_path / "bad.html"
    path.write_text("<script>console.error('wrong')</script><img src='missing.png'><p>text</p>")
    browser.open(path)
    methods = {event["method"] for event in browser.complaints()}
    assert {"Runtime.consoleAPICalled", "Network.requestWillBeSent"} <= methods
