"""The operator against the real local endpoint, whose jobs are small Python programs in real processes."""

import json
import logging
import re
import signal
import subprocess
import sys
import tarfile
import threading
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import boto3
import pytest
from moto.server import ThreadedMotoServer

from components.artifacts import fetch_artifact
from components.clients import sagemaker_client
from components.errors import InvalidConfig, InvalidRecords, TrainingJobFailed
from components.job_requests import job_name
from components.jobs import JobStatus
from components.training_jobs import Channel, FinishedJob, TrainingJob, create_request, run_training_job
from pipelines.local.sagemaker import LocalSageMaker

CASE = Path(__file__).parents[3] / "shared" / "cases" / "24-job-names"
LEGAL_NAME = re.compile("[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # TrainingJobName in the API reference
POLL_S = 0.05
JobOf = Callable[..., TrainingJob]


def run(job: TrainingJob, client: Any, **how: Any) -> FinishedJob:
    return run_training_job(job, client, poll_s=POLL_S, **how)


def status(client: Any, name: str) -> str:
    return str(client.describe_training_job(TrainingJobName=name)["TrainingJobStatus"])


@pytest.mark.skipif(not CASE.is_dir(), reason="the shared cases are not beside this checkout")
def test_names_of_the_shared_case_are_legal_and_all_different() -> None:
    inputs = json.loads((CASE / "inputs.json").read_text())
    names = [job_name(row["base"], row["run"], "train", int(row["attempt"]), "hash") for row in inputs]
    assert len(names) == 7
    assert all(LEGAL_NAME.fullmatch(name) for name in names)
    assert len(set(names)) == 7


@pytest.mark.parametrize(
    ("base", "start"),
    [
        ("deepfm-train", "deepfm-train-"),
        ("deepfm_train", "deepfm-train-"),
        ("Täglicher Lauf #3", "Taglicher-Lauf-3-"),
        ("-deepfm-", "deepfm-"),
        ("", "job-"),
        ("点击率", "job-"),
        ("a" * 80, "a" * 46 + "-"),
        ("a" * 45 + "-b", "a" * 45 + "-"),
    ],
)
def test_names_stay_readable_and_keep_their_tail(base: str, start: str) -> None:
    name = job_name(base, "2f0c", "train", 0, "hash")
    assert re.fullmatch(re.escape(start) + "[0-9a-f]{16}", name)
    assert LEGAL_NAME.fullmatch(name)


def test_a_name_differs_when_anything_differs_and_only_then(training_job: JobOf) -> None:
    same = training_job()
    others = [
        replace(same, run_id="2f0d"),
        replace(same, task="probe"),
        replace(same, attempt=1),
        replace(same, hyperparameters={"epochs": "2"}),
        replace(same, channels=(Channel(name="train", uri="s3://b/k"),)),
        replace(same, environment={"A": "b"}),
        replace(same, max_runtime_s=61),
    ]
    names = [create_request(each)["TrainingJobName"] for each in (same, *others)]
    assert len(set(names)) == len(names)
    assert create_request(training_job())["TrainingJobName"] == names[0]


def test_a_channel_name_is_used_once(training_job: JobOf) -> None:
    with pytest.raises(InvalidConfig, match="channel train is there more than once"):
        training_job(channels=(Channel(name="train", uri="s3://b/1"), Channel(name="train", uri="s3://b/2")))


TRAINS = """
import json, os, pathlib
me = json.load(open("input/config/resourceconfig.json"))["current_host"]
rows = pathlib.Path("input/data/train/part").read_text()
epochs = json.load(open("input/config/hyperparameters.json"))["epochs"]
pathlib.Path("model/weights").write_text(f"{rows} x {epochs}")
pathlib.Path(f"output/data/{me}.txt").write_text(os.environ["CTRFLOW_RUN_ID"])
print("loss 0.5 on", me)
"""


def test_a_job_runs_to_its_end_and_its_artifacts_can_be_fetched(
    tmp_path: Path, client: Any, caplog: pytest.LogCaptureFixture, training_job: JobOf
) -> None:
    caplog.set_level(logging.INFO, "components")
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "part").write_text("rows")
    seen: list[JobStatus] = []
    channel = Channel(name="train", uri=(tmp_path / "train").as_uri(), input_mode="FastFile")
    wanted = training_job(TRAINS, instance_count=2, channels=(channel,), hyperparameters={"epochs": "3"})
    done = run(wanted, client, on_status=seen.append)
    assert done.status == "Completed"
    assert done.name == create_request(wanted)["TrainingJobName"]
    assert done.billable_s >= 1
    assert [(each.status, each.secondary) for each in seen][-1] == ("Completed", "Completed")
    assert len({(each.status, each.secondary) for each in seen}) == len(seen)
    assert (fetch_artifact(done.model_uri, tmp_path / "model") / "weights").read_text() == "rows x 3"
    output = fetch_artifact(done.output_uri, tmp_path / "output")
    assert {path.name: path.read_text() for path in output.iterdir()} == {"algo-1.txt": "2f0c", "algo-2.txt": "2f0c"}
    for host in ("algo-1", "algo-2"):
        assert f"{done.name} {host}: loss 0.5 on {host}" in caplog.messages


def test_asking_again_adopts_the_job_that_ran(client: Any, training_job: JobOf) -> None:
    program = "open('output/data/ran', 'a').write('once ')"
    first = run(training_job(program), client)
    assert run(training_job(program), client) == first
    assert len(client.list_training_jobs()["TrainingJobSummaries"]) == 1
    assert run(training_job(program, attempt=1), client).name != first.name


def test_asking_again_adopts_the_job_that_is_running(tmp_path: Path, client: Any, training_job: JobOf) -> None:
    program = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)"
    request = create_request(training_job(program))
    client.create_training_job(**request)  # an earlier try, whose reply was lost
    folder = tmp_path / "jobs" / request["TrainingJobName"] / "algo-1"
    seen: list[JobStatus] = []
    threading.Timer(1, lambda: (folder / "go").touch()).start()
    assert run(training_job(program), client, on_status=seen.append).name == request["TrainingJobName"]
    assert seen[0].status == "InProgress"


@pytest.mark.parametrize("tags", [[{"Key": "ctrflow:request-hash", "Value": "of-another"}], []])
def test_a_name_that_belongs_to_another_job_is_left_alone(client: Any, training_job: JobOf, tags: list[dict[str, str]]) -> None:
    request = create_request(training_job("import time; time.sleep(60)"))
    client.create_training_job(**request | {"Tags": tags})
    with pytest.raises(TrainingJobFailed, match=f"{request['TrainingJobName']}: a training job of this name already exists"):
        run(training_job("import time; time.sleep(60)"), client)
    assert status(client, request["TrainingJobName"]) == "InProgress"


def test_the_failure_reason_is_the_error_in_one_line(client: Any, training_job: JobOf) -> None:
    program = "open('output/failure', 'w').write('Traceback:\\n  line 3\\nInvalidRecords: no rows'); raise SystemExit(1)"
    name = create_request(training_job(program))["TrainingJobName"]
    with pytest.raises(TrainingJobFailed) as failure:
        run(training_job(program), client)
    assert str(failure.value) == f"{name}: AlgorithmError: Traceback: line 3 InvalidRecords: no rows"


def test_the_time_limit_is_told_from_a_stop(client: Any, training_job: JobOf) -> None:
    with pytest.raises(TrainingJobFailed, match=r"MaxRuntimeInSeconds = 1 s \(MaxRuntimeExceeded\)"):
        run(training_job("import time; time.sleep(60)", max_runtime_s=1), client)


def test_a_job_that_someone_stops_is_an_error(client: Any, training_job: JobOf) -> None:
    def stop(now: JobStatus) -> None:
        if now.secondary == "Training":
            client.stop_training_job(TrainingJobName=now.name)

    with pytest.raises(TrainingJobFailed, match="stopped by someone's StopTrainingJob"):
        run(training_job("import time; time.sleep(60)"), client, on_status=stop)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"instance_type": "local"}, "ResourceConfig.InstanceType: 'local'"),
        ({"max_runtime_s": 0}, "StoppingCondition.MaxRuntimeInSeconds"),
        ({"hyperparameters": {"a": "x" * 2501}}, "HyperParameters.a: 2501 characters"),
        ({"output_uri": "/out"}, "OutputDataConfig.S3OutputPath: '/out'"),
    ],
)
def test_a_bad_request_is_not_sent(client: Any, training_job: JobOf, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=re.escape(named)):
        run(training_job(**changes), client)
    assert client.list_training_jobs()["TrainingJobSummaries"] == []


def test_what_the_service_refuses_is_said_once(endpoint: LocalSageMaker, training_job: JobOf) -> None:
    message = "The account-level service limit 'ml.p4d.24xlarge for training job usage' is 0 Instances"
    faults = {"CreateTrainingJob": [(400, "ResourceLimitExceeded", message)] * 2}
    with faulty(endpoint.url, faults) as url:
        with pytest.raises(TrainingJobFailed, match=r"quota 'ml\.p4d\.24xlarge for training job usage' of this account is used up"):
            run(training_job(), client_at(url))
    assert len(faults["CreateTrainingJob"]) == 1  # asked once


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_any_other_way_out_stops_the_job(
    client: Any, training_job: JobOf, eventually: Callable[..., Any], error: type[BaseException]
) -> None:
    def leave(now: JobStatus) -> None:
        if now.secondary == "Training":
            raise error

    with pytest.raises(error):
        run(training_job("import time; time.sleep(60)"), client, on_status=leave)
    (only,) = client.list_training_jobs()["TrainingJobSummaries"]
    assert eventually(lambda: status(client, only["TrainingJobName"]) == "Stopped")


@pytest.mark.parametrize(("sent", "exit_code"), [(signal.SIGTERM, 143), (signal.SIGINT, 1)])
def test_a_signal_to_the_operator_stops_the_job(
    tmp_path: Path,
    client: Any,
    training_job: JobOf,
    eventually: Callable[..., Any],
    sent: signal.Signals,
    exit_code: int,
) -> None:
    wanted = training_job("import time; open('started', 'w'); time.sleep(60)")
    name = create_request(wanted)["TrainingJobName"]
    operator = tmp_path / "operator.py"
    operator.write_text(
        # A shell that starts this suite in the background has it ignore SIGINT, and so would everything below it.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from components.clients import sagemaker_client\nfrom components.training_jobs import TrainingJob, run_training_job\n"
        f"try: run_training_job({wanted!r}, sagemaker_client(), poll_s=0.05)\nexcept KeyboardInterrupt: raise SystemExit(1)"
    )
    with subprocess.Popen([sys.executable, str(operator)]) as process:
        eventually(lambda: (tmp_path / "jobs" / name / "algo-1" / "started").exists())
        process.send_signal(sent)
        assert process.wait(10) == exit_code
    # It had asked before it left.
    assert status(client, name) in ("Stopping", "Stopped")
    assert eventually(lambda: status(client, name) == "Stopped")


class faulty:
    """A real HTTP hop before the endpoint that answers the first calls of an operation with the given errors."""

    def __init__(self, endpoint: str, faults: dict[str, list[tuple[int, str, str]]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                pending = faults.get(self.headers["X-Amz-Target"].partition(".")[2])
                if pending:
                    code, kind, message = pending.pop(0)
                    content = json.dumps({"__type": kind, "message": message}).encode()
                else:
                    passed_on = {"X-Amz-Target": self.headers["X-Amz-Target"]}
                    try:
                        with urllib.request.urlopen(urllib.request.Request(endpoint, body, passed_on)) as reply:
                            code, content = reply.status, reply.read()
                    except HTTPError as error:
                        code, content = error.code, error.read()
                self.send_response(code)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def client_at(url: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", url)
        return sagemaker_client()


THROTTLED = (400, "ThrottlingException", "Rate exceeded")
DOWN = (503, "ServiceUnavailable", "")


def test_throttling_and_server_errors_are_outlasted(
    endpoint: LocalSageMaker, monkeypatch: pytest.MonkeyPatch, training_job: JobOf
) -> None:
    faults = {
        "CreateTrainingJob": [THROTTLED] * 3,
        "DescribeTrainingJob": [DOWN, THROTTLED, THROTTLED, DOWN, (400, "ExpiredTokenException", "expired")],
        "GetLogEvents": [(400, "AccessDeniedException", "no logs for you")],
    }
    with faulty(endpoint.url, faults) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", url)
        assert run(training_job("print('x')"), sagemaker_client()).status == "Completed"
    assert faults == {operation: [] for operation in faults}


def test_a_reply_that_is_lost_does_not_create_a_second_job(endpoint: LocalSageMaker, client: Any, training_job: JobOf) -> None:
    program = "open('output/data/x', 'w')"
    client.create_training_job(**create_request(training_job(program)))
    with faulty(endpoint.url, {"CreateTrainingJob": [DOWN]}) as url:
        assert run(training_job(program), client_at(url)).status == "Completed"
    assert len(client.list_training_jobs()["TrainingJobSummaries"]) == 1


def test_trouble_past_the_deadline_fails_and_stops_the_job(
    endpoint: LocalSageMaker, client: Any, training_job: JobOf, eventually: Callable[..., Any]
) -> None:
    wanted = training_job("import time; time.sleep(60)")
    with faulty(endpoint.url, {"DescribeTrainingJob": [THROTTLED] * 1000}) as url:
        with pytest.raises(TrainingJobFailed, match=r"DescribeTrainingJob has not got through for 0\.5 s"):
            run(wanted, client_at(url), patience_s=0.5)
    name = create_request(wanted)["TrainingJobName"]
    assert eventually(lambda: status(client, name) == "Stopped")


def test_an_error_that_does_not_pass_stops_the_job_at_once(
    endpoint: LocalSageMaker, client: Any, training_job: JobOf, eventually: Callable[..., Any]
) -> None:
    wanted = training_job("import time; time.sleep(60)")
    with faulty(endpoint.url, {"DescribeTrainingJob": [(400, "AccessDeniedException", "not allowed")]}) as url:
        with pytest.raises(TrainingJobFailed, match="not allowed"):
            run(wanted, client_at(url))
    assert eventually(lambda: status(client, create_request(wanted)["TrainingJobName"]) == "Stopped")


def test_an_endpoint_that_is_gone_is_said(training_job: JobOf) -> None:
    with pytest.raises(TrainingJobFailed, match=r"CreateTrainingJob has not got through for 0\.1 s"):
        run(training_job(), client_at("http://127.0.0.1:9"), patience_s=0.1)


def pack(path: Path, name: str) -> str:
    (path.parent / "content").write_text("content")
    with tarfile.open(path, "w:gz") as tar:
        tar.add(path.parent / "content", arcname=name)
    return path.as_uri()


def test_an_artifact_comes_from_s3_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{server.get_host_and_port()[1]}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="clicks")
    pack(tmp_path / "a.tar.gz", "weights")
    boto3.client("s3").upload_file(str(tmp_path / "a.tar.gz"), "clicks", "job/output/model.tar.gz")
    assert (fetch_artifact("s3://clicks/job/output/model.tar.gz", tmp_path / "model") / "weights").read_text() == "content"
    with pytest.raises(InvalidRecords, match="s3://clicks/nothing: "):
        fetch_artifact("s3://clicks/nothing", tmp_path / "other")
    assert not (tmp_path / "other").exists()
    server.stop()


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside-of-ctrflow"])
def test_an_artifact_cannot_write_outside_its_folder(tmp_path: Path, name: str) -> None:
    uri = pack(tmp_path / "bad.tar.gz", name)
    if name.startswith("/"):  # Python strips the leading slash: it lands inside
        fetch_artifact(uri, tmp_path / "model")
    else:
        with pytest.raises(InvalidRecords, match="outside the destination"):
            fetch_artifact(uri, tmp_path / "model")
        assert not (tmp_path / "model").exists()
    assert not (tmp_path / "outside").exists()
    assert not Path("/tmp/outside-of-ctrflow").exists()


def test_an_artifact_holds_files_and_folders_only(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "link", "link")
    with pytest.raises(InvalidRecords, match="'link' is neither a file nor a folder"):
        fetch_artifact((tmp_path / "bad.tar.gz").as_uri(), tmp_path / "model")


@pytest.mark.parametrize("cut", [0, 20])
def test_a_damaged_artifact_leaves_no_folder(tmp_path: Path, cut: int) -> None:
    uri = pack(tmp_path / "cut.tar.gz", "weights")
    (tmp_path / "cut.tar.gz").write_bytes((tmp_path / "cut.tar.gz").read_bytes()[:cut])
    with pytest.raises(InvalidRecords, match=r"cut\.tar\.gz: not a sound tar\.gz"):
        fetch_artifact(uri, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["content", "cut.tar.gz"]


def test_a_missing_artifact_and_a_taken_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecords, match=r"file:///nowhere/model\.tar\.gz: no such artifact"):
        fetch_artifact("file:///nowhere/model.tar.gz", tmp_path / "model")
    with pytest.raises(InvalidConfig, match="s3://bucket/key or file:///path is expected"):
        fetch_artifact("http://somewhere", tmp_path / "model")
    uri = pack(tmp_path / "a.tar.gz", "weights")
    with pytest.raises(InvalidConfig, match="exists and is not empty"):
        fetch_artifact(uri, tmp_path)
