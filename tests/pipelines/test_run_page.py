"""index.html of a run's folder, of every way in which a run can end, made from folders as runs leave them."""

import json
from pathlib import Path

import psutil
import pytest

from components.errors import InvalidConfig
from pipelines.compiled import compile_retrain
from pipelines.run_page import pipeline_edges, write_run_page
from pipelines.runs import RunRecord, Task, read_run

REFRESH = '<meta http-equiv="refresh"'


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("compiled") / "pipeline.yaml"
    compile_retrain(path)
    return path


@pytest.fixture
def record(tmp_path: Path, compiled: Path) -> RunRecord:
    """A run that goes on, in this process: preprocess has ended where KFP runs it, profile-utilization has begun."""
    made = RunRecord(tmp_path, "r1", {"seed": 1, "name": "<deepfm>"}, written=lambda folder, run: None)
    (made.folder / "pipeline.yaml").write_bytes(compiled.read_bytes())
    made._written = write_run_page
    outputs = made.folder / "retrain-2026-12-02/preprocess"
    outputs.mkdir(parents=True)
    (outputs / "report.html").write_text("<p>the report</p>")
    metrics = {"artifacts": [{"name": "metrics", "metadata": {"train_rows": 179200.0}}]}
    (outputs / "executor_output.json").write_text(json.dumps({"artifacts": {"metrics": metrics}}))
    begun = Task(name="preprocess", state="running", started="2026-12-02T19:49:50.632+00:00")
    made.put(begun)
    made.put(
        Task(name="preprocess", state="succeeded", started=begun.started, ended=begun.started, elapsed_s=1.5, figures="7 rows")
    )
    made.put(Task(name="profile-utilization", state="running", started="2026-12-02T19:49:52.169+00:00"))
    return made


def page(record: RunRecord) -> str:
    return (record.folder / "index.html").read_text()


def test_a_run_that_goes_on_shows_what_is_there_and_is_read_again(record: RunRecord) -> None:
    text = page(record)
    assert "running since" in text
    assert REFRESH in text
    for part in ("7 rows", "1.5 s", "179,200", "&lt;deepfm&gt;", 'href="retrain-2026-12-02/preprocess/report.html"'):
        assert part in text
    assert "promote: waiting" in text
    assert "<script" not in text


def test_the_page_of_a_run_that_has_ended_is_read_once_and_its_links_lead_to_files(record: RunRecord) -> None:
    outputs = record.folder / "retrain-2026-12-02/preprocess"
    outputs.rename(record.folder / "preprocess")
    record.end("failed", "step profile-utilization failed: too few rows <b>")
    text = page(record)
    assert "failed after" in text
    assert "too few rows &lt;b&gt;" in text
    assert "promote: not run" in text
    assert REFRESH not in text
    links = [part.split('"')[0] for part in text.split('href="')[1:]]
    assert "preprocess/report.html" in links
    assert [link for link in links if not (record.folder / link).is_file()] == []


def test_a_stopped_run_says_by_what(record: RunRecord) -> None:
    record.end("stopped", "stopped by SIGINT")
    assert "stopped by SIGINT" in page(record)
    assert "profile-utilization: stopped" in page(record)


def test_a_run_whose_process_is_gone_is_interrupted(record: RunRecord) -> None:
    """Another process has its number by now, one that began a day later."""
    path = record.folder / "run.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "pid_started": psutil.Process().create_time() - 86400}))
    write_run_page(record.folder)
    text = page(record)
    assert "interrupted: its process has ended without a word" in text
    assert "profile-utilization: interrupted" in text
    assert REFRESH not in text


def test_the_graph_is_that_of_the_compiled_pipeline(compiled: Path) -> None:
    edges = pipeline_edges(compiled)
    assert sorted(edges["train"]) == ["preprocess", "select-strategy"]
    assert edges["preprocess"] == []


@pytest.mark.parametrize("text", ["", "a: [", "root: 3", "root: {dag: {tasks: {a: {}}}}\ncomponents: {}", "- 1"])
def test_what_is_no_compiled_pipeline_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=r"pipeline\.yaml: not a compiled pipeline") as refused:
        pipeline_edges(path)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not valid JSON"),
        ("[]", "not the record of a run"),
        ('{"tasks": [{"name": 3}]}', "name 3 is not str"),
        ("{}", "record"),
    ],
)
def test_a_damaged_record_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    with pytest.raises(InvalidConfig, match=said):
        read_run(path)
