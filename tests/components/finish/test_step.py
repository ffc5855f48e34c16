"""The exit handler: real jobs at the local endpoint, a real webhook, a topic of a real SNS."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from components.clients import sagemaker_client
from components.errors import RunNotSucceeded
from components.finish.step import FinishConfig, Outcome, finish, subject_of
from components.processing_jobs import ProcessingJob, create_request
from pipelines.local.sagemaker import LocalSageMaker

GOOD = Outcome(run_id="run-1", name="deepfm", state="SUCCEEDED", task="exit-handler-1")
BAD = Outcome(run_id="run-1", name="deepfm", state="FAILED", task="train", error="day1.tsv, line 3: no label")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with LocalSageMaker(tmp_path_factory.mktemp("jobs"), stop_grace_s=2) as running, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_SAGEMAKER", running.url)
        yield sagemaker_client()


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the documents that came."""
    came: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if self.path.startswith("/broken") else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", came
    server.shutdown()
    server.server_close()


def started(client: Any, run_id: str) -> str:
    job = ProcessingJob(
        base_name="ctrflow-test",
        run_id=run_id,
        task="sleep",
        image="example.com/ctrflow/steps:1",
        entrypoint=("python3", "-c", "import time; time.sleep(60)"),
        role_arn="arn:aws:iam::000000000000:role/ctrflow",
        instance_type="ml.m5.large",
        instance_count=1,
        max_runtime_s=60,
    )
    request = create_request(job)
    client.create_processing_job(**request)
    return str(request["ProcessingJobName"])


def status(client: Any, name: str) -> str:
    return str(client.describe_processing_job(ProcessingJobName=name)["ProcessingJobStatus"])


def test_jobs_that_the_run_left_are_stopped_and_those_of_other_runs_are_not(endpoint: Any) -> None:
    ours, theirs = started(endpoint, "run-1"), started(endpoint, "run-2")
    finish(FinishConfig(), GOOD)
    deadline = time.monotonic() + 20
    while status(endpoint, ours) in ("InProgress", "Stopping"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (status(endpoint, ours), status(endpoint, theirs)) == ("Stopped", "InProgress")
    endpoint.stop_processing_job(ProcessingJobName=theirs)


def test_a_webhook_is_told_what_failed_and_the_failure_is_not_hidden(
    endpoint: Any, webhook: tuple[str, list[dict[str, Any]]]
) -> None:
    sentence = "ctrflow: retraining of deepfm, run run-1: FAILED: train: day1.tsv, line 3: no label"
    with pytest.raises(RunNotSucceeded) as raised:
        finish(FinishConfig(notify=webhook[0]), BAD)
    assert str(raised.value) == sentence
    expected = {"run_id": "run-1", "name": "deepfm", "state": "FAILED", "task": "train", "error": "day1.tsv, line 3: no label"}
    assert webhook[1] == [{"text": sentence, **expected}]


def test_a_word_that_does_not_get_through_fails_the_step_and_keeps_the_run_s_own_reason(
    endpoint: Any, webhook: tuple[str, list[dict[str, Any]]]
) -> None:
    with pytest.raises(RunNotSucceeded, match=r"^notify http://127.0.0.1:\d+/broken: HTTP Error 500"):
        finish(FinishConfig(notify=f"{webhook[0]}/broken?token=secret"), GOOD)
    with pytest.raises(RunNotSucceeded, match=r"line 3: no label; notify .*/broken: HTTP Error 500") as raised:
        finish(FinishConfig(notify=f"{webhook[0]}/broken?token=secret"), BAD)
    assert "secret" not in str(raised.value).replace("the secret ctrflow-notify", "")


def test_a_subject_is_one_line_of_less_than_100_characters_of_ascii() -> None:
    """As SNS's API reference has it for Publish."""
    assert Outcome(run_id="r", name="m", state="FAILED", task="train", error="day 1:\n  no label\n").sentence.endswith(
        "day 1: no label"
    )
    assert subject_of("FAILED: São\x07") == "FAILED: S?o?"
    assert len(subject_of("é" * 500)) == 99


def test_a_topic_is_told(endpoint: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL_SNS", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        topic = boto3.client("sns", region_name="eu-west-1").create_topic(Name="retrained")["TopicArn"]
        sqs = boto3.client("sqs", region_name="eu-west-1")
        queue = sqs.create_queue(QueueName="inbox")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        boto3.client("sns", region_name="eu-west-1").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
        finish(FinishConfig(notify=topic), GOOD)
        (message,) = sqs.receive_message(QueueUrl=queue)["Messages"]
        said = json.loads(message["Body"])
        assert said["Message"] == said["Subject"] == "ctrflow: retraining of deepfm, run run-1: SUCCEEDED"
    finally:
        server.stop()
