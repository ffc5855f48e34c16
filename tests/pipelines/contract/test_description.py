"""The server of these tests refuses what the description does not allow: a contract that takes anything is none."""

import json
import urllib.error
import urllib.request
from typing import Any

import kfp_server_api
import pytest
from kfp import Client


def test_the_description_has_the_operations_that_kfp_documents(operations: list[Any]) -> None:
    """Some of https://www.kubeflow.org/docs/components/pipelines/reference/api, written down from there."""
    found = {(operation.verb, operation.path): operation for operation in operations}
    assert found["POST", "/apis/v2beta1/runs"].body == "V2beta1Run"
    assert found["POST", "/apis/v2beta1/runs/{run_id}:terminate"].answers == "object"
    assert found["POST", "/apis/v2beta1/runs/{run_id}:retry"].body is None
    assert found["GET", "/apis/v2beta1/recurringruns"].query == {
        "page_token",
        "page_size",
        "sort_by",
        "namespace",
        "filter",
        "experiment_id",
    }
    assert found["POST", "/apis/v2beta1/pipelines/upload_version"].query >= {"name", "pipelineid"}
    assert len(found) == len(operations) > 30


@pytest.fixture
def post(server: Any) -> Any:
    url, state = server
    state.experiments["e"] = {"experiment_id": "e", "display_name": "e"}

    def send(path: str, body: Any) -> str:
        """Why it was refused."""
        request = urllib.request.Request(f"{url}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(request)
        return str(json.loads(raised.value.read())["message"])

    return send


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/apis/v2beta1/runs", {"displayname": "x"}, "'displayname' was unexpected"),
        ("/apis/v2beta1/runs", {"runtime_config": {"parameter": {}}}, "'parameter' was unexpected"),
        ("/apis/v2beta1/runs", {"display_name": 5}, "5 is not of type 'string'"),
        ("/apis/v2beta1/runs", {"state": "DONE"}, "'DONE' is not one of"),
        ("/apis/v2beta1/recurringruns", {"trigger": {"cron": "0 0 3 * * *"}}, "'cron' was unexpected"),
        ("/apis/v2beta1/recurringruns", {"mode": "ENABLED"}, "'ENABLED' is not one of"),
        ("/apis/v2beta1/recurringruns", {"max_concurrency": 1.5}, "1.5 is not of type 'string', 'integer'"),
        ("/apis/v2beta1/recurringruns", {"no_catchup": "yes"}, "'yes' is not of type 'boolean'"),
        ("/apis/v2beta1/runs?page=1", {}, "unknown query parameters {'page'}"),
        ("/apis/v1beta1/runs", {}, "no operation POST /apis/v1beta1/runs"),
    ],
)
def test_what_the_description_does_not_allow_is_refused(post: Any, path: str, body: Any, says: str) -> None:
    assert says in post(path, body)


@pytest.mark.filterwarnings("ignore:This client only works:FutureWarning")
def test_the_real_client_passes_and_an_int64_may_be_a_number(server: Any) -> None:
    url, state = server
    client = Client(host=url)
    experiment = client.create_experiment("ads").experiment_id
    assert client.create_experiment("ads").experiment_id == experiment
    pipeline = client.pipelines.pipeline_service_create_pipeline(kfp_server_api.V2beta1Pipeline(display_name="p"))
    state.versions["v"] = {
        "pipeline_id": pipeline.pipeline_id,
        "pipeline_version_id": "v",
        "display_name": "v",
        "pipeline_spec": {"root": {"inputDefinitions": {"parameters": {}}}},
    }
    made = client.create_recurring_run(
        experiment, "ads", cron_expression="0 0 3 * * *", max_concurrency=1, pipeline_id=pipeline.pipeline_id, version_id="v"
    )
    assert (made.status, made.max_concurrency) == ("ENABLED", "1")
