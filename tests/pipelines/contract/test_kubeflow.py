"""Contract tests: our commands, through the real kfp.Client, against a server that is as strict as KFP's API description."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

Said = Callable[..., Any]
DIGEST = "sha256:" + "a" * 64
OTHER_DIGEST = "sha256:" + "b" * 64
RECIPE = f"""
name: ads
data: ["s3://logs/{{date-1}}/*.tsv"]
learning: {{epochs: 2}}
cluster:
  pipeline_root: s3://bucket/kfp
  store: /models
  steps_image: example.com/ctrflow/python-steps@{DIGEST}
  training_image: example.com/ctrflow/python-training:0.1.0
  service_account: pipeline-runner
  sagemaker: {{role: "arn:aws:iam::123456789012:role/training", region: eu-west-1, output_uri: "s3://bucket/jobs"}}
"""
UNKNOWN = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any) -> Path:
    """A checkout with a recipe, and the server as KFP's own environment variable names it."""
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KF_PIPELINES_ENDPOINT", server[0])
    return tmp_path


@pytest.fixture
def state(server: Any) -> Any:
    return server[1]


def submitted(said: Said, *arguments: str) -> Any:
    code, document, errors = said("submit", "--json", *arguments)
    assert code == 0, errors
    return document


def test_a_run_has_the_recipe_s_parameters_and_runs_what_was_uploaded(said: Said, state: Any) -> None:
    document = submitted(said)
    ((_, experiment), (_, run)) = [each for each in state.bodies if "experiment" in each[0] or "run" in each[0]]
    assert experiment["display_name"] == "ctrflow"
    parameters = run["runtime_config"]["parameters"]
    assert json.loads(parameters["inputs"]) == ["s3://logs/{date-1}/*.tsv"]
    assert (parameters["epochs"], parameters["run_date"], parameters["store"]) == (2, "", "/models")
    assert (parameters["role"], parameters["region"]) == ("arn:aws:iam::123456789012:role/training", "eu-west-1")
    assert json.loads(parameters["jobs"])["image"] == "example.com/ctrflow/python-training:0.1.0"
    assert run["runtime_config"]["pipeline_root"] == "s3://bucket/kfp"
    assert run["service_account"] == "pipeline-runner"
    (version,) = state.versions.values()
    assert run["pipeline_version_reference"]["pipeline_version_id"] == version["pipeline_version_id"]
    assert version["display_name"] == document["version"]
    executors = version["pipeline_spec"]["deploymentSpec"]["executors"]
    assert {each["container"]["image"] for each in executors.values()} == {
        f"example.com/ctrflow/python-steps@{DIGEST}",
        "example.com/ctrflow/python-training:0.1.0",
    }


def test_a_version_is_uploaded_when_the_pipeline_changed_and_not_when_the_recipe_did(said: Said, state: Any) -> None:
    first = submitted(said)
    again = submitted(said, "--set", "learning.epochs=3")
    assert (first["uploaded"], again["uploaded"], again["version"]) == (True, False, first["version"])
    other = submitted(said, "--set", f"cluster.steps_image=example.com/ctrflow/python-steps@{OTHER_DIGEST}")
    assert other["uploaded"]
    assert len(state.versions) == 2
    assert len(state.pipelines) == 1


def test_wait_follows_states_and_steps_to_the_end(said: Said) -> None:
    code, output, _ = said("submit", "--wait", "--poll-s", "0")
    lines = output.splitlines()
    assert code == 0
    assert lines[0].startswith("run ")
    assert lines[1] == "run: PENDING"
    assert lines[2:5] == ["run: RUNNING", "preprocess: RUNNING", "preprocess: SUCCEEDED"] or lines[2] == "preprocess: RUNNING"
    assert lines[-2:] == ["finish: SUCCEEDED", "run: SUCCEEDED"]
    steps = [line.split(":")[0] for line in lines if line.endswith(": RUNNING")]
    assert [step for step in steps if step != "run"] == [
        "preprocess",
        "profile-utilization",
        "select-strategy",
        "train",
        "evaluate",
        "promote",
        "finish",
    ]


def test_wait_exits_1_when_the_run_failed_and_names_the_step(said: Said, state: Any) -> None:
    state.fails_at = "train"
    code, _, errors = said("submit", "--wait", "--poll-s", "0")
    (run_id,) = state.runs
    assert code == 1
    expected = f"run {run_id}: FAILED: step train, step train exited with 1; ctrflow runs logs {run_id}"
    assert errors.splitlines()[-1] == f"ctrflow: {expected}"


def test_wait_exits_1_when_somebody_cancels_the_run(said: Said, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """KFP's own client waits for ever then."""
    looks = state.go_on

    def cancelled_in_training(run: Any) -> None:
        looks(run)
        if run["run_details"]["task_details"][-1]["display_name"] == "train" and run["state"] == "RUNNING":
            run["state"] = "CANCELING"

    monkeypatch.setattr(state, "go_on", cancelled_in_training)
    code, output, errors = said("submit", "--wait", "--poll-s", "0")
    assert (code, output.splitlines()[-1]) == (1, "run: CANCELED")
    assert ": CANCELED; " in errors


def test_wait_outlives_a_gap_in_the_connection_but_not_its_time(said: Said, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = state.go_on

    def gap_in_training(run: Any) -> None:
        looks(run)
        state.outage = 3 if run["run_details"]["task_details"][-1]["display_name"] == "train" else 0

    monkeypatch.setattr(state, "go_on", gap_in_training)
    assert said("submit", "--wait", "--poll-s", "0")[0] == 0
    monkeypatch.setattr(state, "go_on", lambda run: None)
    code, _, errors = said("submit", "--wait", "--poll-s", "0", "--timeout-s", "0.05")
    assert code == 1
    assert "still PENDING after 0.05 s" in errors


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("cluster.pipeline_root=", "recipe.yaml: cluster.pipeline_root: not set; a run on a cluster needs them"),
        ("cluster.pipeline_root=/tmp", "cluster.pipeline_root '/tmp': s3://bucket/prefix is expected"),
        ("data=[]", "recipe.yaml: data: not set"),
        ("data=[logs/day.tsv]", "data 'logs/day.tsv': a cluster has no such folder"),
        ("cluster.sagemaker.role=", "cluster.sagemaker.role: not set"),
        ("cluster.steps_image=ctrflow/steps", "cluster.steps_image 'ctrflow/steps': names another image tomorrow"),
        ("cluster.steps_image=ctrflow/steps:latest", "names another image tomorrow"),
        ("cluster.training_image=localhost:5000/training", "names another image tomorrow"),
        ("cluster.training_image=two words:1", "registry/name:version is expected"),
        ("learning.epoch=3", "'epoch' is unknown; did you mean epochs?"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_is_sent(said: Said, state: Any, override: str, says: str) -> None:
    code, _, errors = said("submit", "--set", override)
    assert code == 1
    assert says in errors
    assert len(errors.splitlines()) == 1
    assert state.calls == []


def test_amazon_s_registry_is_asked_for_images(said: Said, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import boto3

    registry = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    registry.start()
    try:
        host, port = registry.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL_ECR", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        ecr = boto3.client("ecr", region_name="eu-west-1")
        for name, mutability in (("fixed", "IMMUTABLE"), ("moving", "MUTABLE")):
            ecr.create_repository(repositoryName=name, imageTagMutability=mutability)
            kind = "application/vnd.oci.image.manifest.v1+json"
            manifest = {
                "schemaVersion": 2,
                "mediaType": kind,
                "config": {"digest": f"sha256:{name.encode().hex():0<64}"},
                "layers": [],
            }
            ecr.put_image(repositoryName=name, imageTag="1", imageManifest=json.dumps(manifest))
        at = "cluster.training_image=123456789012.dkr.ecr.eu-west-1.amazonaws.com"
        assert submitted(said, "--set", f"{at}/fixed:1")["state"] == "PENDING"
        for image, says in (
            ("fixed:2", "push it first"),
            ("none:1", "push it first"),
            ("moving:1", "tags of that repository can be moved to another image"),
        ):
            code, _, errors = said("submit", "--set", f"{at}/{image}")
            assert (code, len(state.runs)) == (1, 1)
            assert says in errors
    finally:
        registry.stop()


def test_runs_are_listed_shown_and_their_logs_read(
    said: Said, state: Any, server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = submitted(said, "--wait", "--poll-s", "0")
    state.now += timedelta(hours=1)
    others = [submitted(said) for _ in range(2)]
    _, listed, _ = said("runs", "list", "--cluster", "--json")
    assert [run["run_id"] for run in listed][-1] == first["run_id"]
    assert {run["run_id"] for run in listed} == {first["run_id"], *(run["run_id"] for run in others)}
    assert len(said("runs", "list", "--cluster", "--most", "2", "--json")[1]) == 2
    _, shown, _ = said("runs", "show", first["run_id"], "--json")
    assert shown["state"] == "SUCCEEDED"
    assert list(shown["steps"])[:2] == ["preprocess", "profile-utilization"]
    assert shown["ended"].startswith("2026-12-02T16:")

    cluster = {
        "clusters": [{"name": "c", "cluster": {"server": server[0]}}],
        "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c", **cluster}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    code, output, errors = said("runs", "logs", first["run_id"], "train", "--pod-namespace", "ads")
    assert (code, output) == (0, "== train\nwhat retrain-x7-train printed\n\n"), errors
    assert len(said("runs", "logs", first["run_id"], "--pod-namespace", "ads", "--json")[1]) == 7
    assert "no step trian" in said("runs", "logs", first["run_id"], "trian")[2]
    assert "refused (404)" in said("runs", "logs", first["run_id"], "train")[2]


def test_terminate_and_retry(said: Said, state: Any) -> None:
    run_id = submitted(said)["run_id"]
    assert "is PENDING; only one that failed or was cancelled can go on" in said("runs", "retry", run_id)[2]
    assert said("runs", "terminate", run_id)[0] == 0
    said("runs", "show", run_id)
    assert said("runs", "show", run_id, "--json")[1]["state"] == "CANCELED"
    assert "refused (400)" in said("runs", "terminate", run_id)[2]
    assert said("runs", "retry", run_id)[0] == 0
    assert state.runs[run_id]["state"] == "RUNNING"
    assert f"run {UNKNOWN}: refused (404): {UNKNOWN} not found" in said("runs", "show", UNKNOWN)[2]


def test_a_retry_goes_on_where_the_run_failed(said: Said, state: Any) -> None:
    state.fails_at = "train"
    assert said("submit", "--wait", "--poll-s", "0")[0] == 1
    (run_id,) = state.runs
    state.fails_at = ""
    assert said("runs", "retry", run_id)[0] == 0
    for _ in range(12):
        shown = said("runs", "show", run_id, "--json")[1]
    assert shown["state"] == "SUCCEEDED"
    tasks = [task["display_name"] for task in state.runs[run_id]["run_details"]["task_details"]]
    assert (tasks.count("preprocess"), tasks.count("train")) == (1, 1)


def scheduled(said: Said, *arguments: str) -> Any:
    code, document, errors = said("schedule", "create", "--cron", "0 3 * * *", "--json", *arguments)
    assert code == 0, errors
    assert errors.startswith("cron 0 0 3 * * * means: At 03:00 every day, in UTC; next 20")
    return document


def test_a_schedule_is_replaced_by_name_and_never_doubled(said: Said, state: Any) -> None:
    first, other = scheduled(said), scheduled(said, "--name", "weekly")
    second = scheduled(said, "--set", "learning.epochs=5")
    assert (first["replaced"], other["replaced"], second["replaced"]) == (0, 0, 1)
    names = [each["display_name"] for each in state.schedules.values()]
    assert sorted(names) == ["ads", "weekly"]
    body = state.schedules[second["id"]]
    assert body["runtime_config"]["parameters"]["epochs"] == 5
    # "today" is each run's own.
    assert body["runtime_config"]["parameters"]["run_date"] == ""
    assert (body["no_catchup"], body["max_concurrency"], body["status"]) == (True, 1, "ENABLED")


def test_whatever_breaks_while_a_schedule_is_replaced_no_two_of_a_name_fire(
    said: Said, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduled(said)
    for operation in ("delete", "enable"):
        name = f"recurring_run_service_{operation}_recurring_run"
        with monkeypatch.context() as patch:
            patch.setattr(state, name, state.gone)
            code, _, errors = said("schedule", "create", "--cron", "0 3 * * *")
        assert code == 1, errors
        assert sum(each["status"] == "ENABLED" for each in state.schedules.values()) <= 1
    made = scheduled(said)
    assert [each["recurring_run_id"] for each in state.schedules.values()] == [made["id"]]


def test_a_schedule_fires_as_it_says_and_does_not_pile_up(said: Said, state: Any) -> None:
    made = scheduled(said)
    assert state.move_clock(datetime(2026, 12, 3, 2, 59, tzinfo=UTC)) == []
    (run,) = state.move_clock(datetime(2026, 12, 3, 3, 0, tzinfo=UTC))
    assert state.move_clock(datetime(2026, 12, 4, 12, 0, tzinfo=UTC)) == []  # the first is still running
    run["state"] = "SUCCEEDED"
    (late,) = state.move_clock(datetime(2026, 12, 8, 12, 0, tzinfo=UTC))
    assert late["scheduled_at"].startswith("2026-12-08T03:00")
    _, listed, _ = said("runs", "list", "--cluster", "--schedule", "ads", "--json")
    assert {each["run_id"] for each in listed} == {run["run_id"], late["run_id"]}
    assert {each["schedule"] for each in listed} == {made["id"]}
    for _ in range(3):
        submitted(said)
    _, newest, _ = said("runs", "list", "--cluster", "--schedule", "ads", "--most", "1", "--json")
    assert [each["run_id"] for each in newest] == [late["run_id"]]
    late["state"] = "FAILED"
    assert said("schedule", "pause", "ads")[0] == 0
    assert state.move_clock(datetime(2026, 12, 10, tzinfo=UTC)) == []
    assert said("schedule", "show", "ads", "--json")[1]["state"] == "paused"
    assert said("schedule", "resume", "ads")[0] == 0
    assert len(state.move_clock(datetime(2026, 12, 11, 4, 0, tzinfo=UTC))) == 1


def test_show_tells_whether_a_schedule_runs_what_is_in_the_checkout(said: Said, state: Any, folder: Path) -> None:
    made = scheduled(said)
    _, shown, _ = said("schedule", "show", "ads", "--json")
    assert (shown["recipe_is_same"], shown["pipeline_is_same"]) == (True, True)
    assert shown["recipe_digest"] == made["recipe_digest"]
    assert "runs the recipe and the pipeline of the checkout" in said("schedule", "show", "ads")[1]
    (folder / "recipe.yaml").write_text(RECIPE.replace("epochs: 2", "epochs: 3").replace(DIGEST, OTHER_DIGEST))
    _, shown, _ = said("schedule", "show", "ads", "--json")
    assert (shown["recipe_is_same"], shown["pipeline_is_same"]) == (False, False)
    assert "runs another recipe and another pipeline than the checkout has" in said("schedule", "show", "ads")[1]
    state.schedules[made["id"]]["description"] = "made in the UI"
    assert said("schedule", "show", "ads", "--json")[1]["recipe_is_same"] is None


def test_run_now_runs_what_the_schedule_runs(said: Said, state: Any) -> None:
    made = scheduled(said, "--set", "learning.epochs=7")
    _, run, _ = said("schedule", "run-now", "ads", "--json")
    body = state.runs[run["run_id"]]
    assert body["runtime_config"] == state.schedules[made["id"]]["runtime_config"]
    assert body["pipeline_version_reference"] == state.schedules[made["id"]]["pipeline_version_reference"]
    assert body["service_account"] == "pipeline-runner"


def test_list_delete_and_a_name_that_is_not_there(said: Said, state: Any) -> None:
    for name in ("a", "b", "c"):
        scheduled(said, "--name", name)
    _, listed, _ = said("schedule", "list", "--json")
    assert sorted(each["name"] for each in listed) == ["a", "b", "c"]
    assert all(each["words"] == "At 03:00 every day" and len(each["next"]) == 3 for each in listed)
    assert said("schedule", "delete", "b")[0] == 0
    assert sorted(each["display_name"] for each in state.schedules.values()) == ["a", "c"]
    assert "schedule b: there is none; known: a, c" in said("schedule", "delete", "b")[2]
    assert "cron '0 3 * *': six fields" in said("schedule", "create", "--cron", "0 3 * *")[2]
    assert "schedule '../a': 1 to 63 letters" in said("schedule", "create", "--cron", "0 3 * * *", "--name", "../a")[2]


@pytest.mark.parametrize(
    ("arguments", "environment", "header"),
    [
        (("--existing-token", "t0ken"), {}, {"Authorization": "Bearer t0ken"}),
        ((), {"KFP_EXISTING_TOKEN": "t0ken"}, {"Authorization": "Bearer t0ken"}),
        (("--cookies", "authservice_session=s"), {}, {"Cookie": "authservice_session=s"}),
        ((), {"KF_PIPELINES_SA_TOKEN_PATH": "token"}, {"Authorization": "Bearer projected"}),
    ],
)
def test_who_asks(
    said: Said,
    state: Any,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    environment: dict[str, str],
    header: dict[str, str],
) -> None:
    (folder / "token").write_text("projected")
    state.headers = header
    assert "Unauthenticated" in said("schedule", "list", "--existing-token", "wrong")[2]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert said("schedule", "list", *arguments)[0] == 0


def test_where_it_is(said: Said, server: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv("KF_PIPELINES_ENDPOINT")
    monkeypatch.setenv("KUBECONFIG", str(folder / "none"))
    assert "where Kubeflow Pipelines is: not said" in said("schedule", "list")[2]
    assert said("schedule", "list", "--endpoint", server[0])[0] == 0
    assert submitted(said, "--set", f"cluster.host={server[0]}")["state"] == "PENDING"
    code, _, errors = said("schedule", "list", "--endpoint", "http://127.0.0.1:1")
    assert code == 1
    assert errors.splitlines()[-1].startswith("ctrflow: http://127.0.0.1:1: to connect: no answer (")
