"""Kubeflow Pipelines through its own client: found and entered as its users do, its errors as one line.

The host is, in this order, --endpoint or the recipe's, KF_PIPELINES_ENDPOINT, the cluster that this runs in, the current context of
kubectl. Who asks: --existing-token, --cookies, a service account's projected token, ~/.config/kfp/context.json, or nobody, as
behind kubectl port-forward.
"""

import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from components.errors import InvalidConfig, WorkflowError

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
PROJECTED = "/var/run/secrets/kubeflow/pipelines/token"
PAGE = 100
EQUALS = "EQUALS"


class ClusterError(WorkflowError):
    """Kubeflow Pipelines could not be reached, or refused; the message says what was asked and what it answered."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Where Kubeflow Pipelines is and who asks; what is empty is found as the module says."""

    host: str = ""
    namespace: str = ""
    existing_token: str = ""
    cookies: str = ""


class KubeflowPipelines:
    """The calls that ctrflow makes, each answered or refused in one line."""

    def __init__(self, access: Access) -> None:
        self.namespace = access.namespace or None
        host = access.host or os.environ.get("KF_PIPELINES_ENDPOINT", "")
        self._where = host or "the cluster of the current context"
        if not (host or IN_CLUSTER.exists() or _has_kubectl()):
            raise InvalidConfig(
                "where Kubeflow Pipelines is: not said; set cluster.host in the recipe, --endpoint, or KF_PIPELINES_ENDPOINT"
            )
        with self._asking("to connect"):
            self.client = _client(host, access)

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        from kfp_server_api.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            # The client prints links, where a document may be wanted.
            with redirect_stdout(sys.stderr):
                yield
        except ApiException as error:
            raise ClusterError(f"{self._where}: {what}: refused ({error.status}): {_reason(error)}") from error
        except (HTTPError, OSError) as error:
            why = " ".join(str(error).split())
            raise ClusterError(f"{self._where}: {what}: no answer ({why}); is it up, or kubectl port-forward running?") from error
        except ValueError as error:
            raise ClusterError(f"{self._where}: {what}: {' '.join(str(error).split())}") from error

    def version(self, pipeline: str, version: str, package: Path) -> tuple[str, str, bool]:
        """Ids of a pipeline and its version, made where they are not there yet; and whether the version is new."""
        import kfp_server_api

        with self._asking(f"version {version} of pipeline {pipeline}"):
            pipeline_id = self.client.get_pipeline_id(pipeline)
            if pipeline_id is None:
                body = kfp_server_api.V2beta1Pipeline(display_name=pipeline, name=pipeline, namespace=self.namespace)
                pipeline_id = self.client.pipelines.pipeline_service_create_pipeline(body).pipeline_id
            found = self.client.list_pipeline_versions(pipeline_id, filter=_named(version)).pipeline_versions
            if found:
                return pipeline_id, found[0].pipeline_version_id, False
            made = self.client.upload_pipeline_version(str(package), version, pipeline_id=pipeline_id)
            return pipeline_id, made.pipeline_version_id, True

    def experiment(self, name: str) -> str:
        """Id of an experiment, made where it is not there yet."""
        with self._asking(f"experiment {name}"):
            return str(self.client.create_experiment(name, namespace=self.namespace).experiment_id)

    def create_run(self, **body: Any) -> Any:
        with self._asking(f"run {body['job_name']}"):
            return self.client.run_pipeline(**body)

    def run(self, run_id: str) -> Any:
        with self._asking(f"run {run_id}"):
            return self.client.get_run(run_id)

    def runs(self, most: int, schedule: str = "") -> list[Any]:
        """The newest runs, of one schedule if its id is given."""
        with self._asking("the list of runs"):

            def page(token: str) -> Any:
                size = PAGE if schedule else min(most, PAGE)
                return self.client.list_runs(page_token=token, page_size=size, sort_by="created_at desc", namespace=self.namespace)

            return list(islice((run for run in _pages(page, "runs") if schedule in ("", run.recurring_run_id)), most))

    def terminate(self, run_id: str) -> None:
        with self._asking(f"run {run_id}: terminate"):
            self.client.terminate_run(run_id)

    def retry(self, run_id: str) -> None:
        with self._asking(f"run {run_id}: retry"):
            self.client.runs.run_service_retry_run(run_id)

    def schedules(self, name: str = "") -> list[Any]:
        """Recurring runs, of one name if it is given."""
        with self._asking("the list of recurring runs"):

            def page(token: str) -> Any:
                named = _named(name) if name else None
                return self.client.list_recurring_runs(page_token=token, page_size=PAGE, namespace=self.namespace, filter=named)

            return list(_pages(page, "recurring_runs"))

    def create_schedule(self, **body: Any) -> Any:
        with self._asking(f"recurring run {body['job_name']}"):
            return self.client.create_recurring_run(**body)

    def enable(self, schedule: str) -> None:
        with self._asking(f"recurring run {schedule}: enable"):
            self.client.enable_recurring_run(schedule)

    def disable(self, schedule: str) -> None:
        with self._asking(f"recurring run {schedule}: disable"):
            self.client.disable_recurring_run(schedule)

    def delete(self, schedule: str) -> None:
        with self._asking(f"recurring run {schedule}: delete"):
            self.client.delete_recurring_run(schedule)


def _client(host: str, access: Access) -> Any:
    from kfp import client

    given = {"existing_token": access.existing_token, "cookies": access.cookies, "namespace": access.namespace}
    arguments: dict[str, Any] = {key: value for key, value in given.items() if value}
    token = os.environ.get("KF_PIPELINES_SA_TOKEN_PATH", PROJECTED)
    if host and not access.existing_token and Path(token).is_file():
        arguments["credentials"] = client.ServiceAccountTokenVolumeCredentials(path=token)

    class Client(client.Client):  # type: ignore[misc]  # kfp has no types
        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            """Asked once at the start. KFP asks five times within 25 s, also where the answer is that the token is wrong."""
            return self._healthz_api.healthz_service_get_healthz()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # which servers it works with, at each start
        return Client(host=host or None, **arguments)


def _has_kubectl() -> bool:
    return Path(os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]).expanduser().is_file()


def _named(name: str) -> str:
    return json.dumps({"predicates": [{"operation": EQUALS, "key": "display_name", "string_value": name}]})


def _pages(page: Callable[[str], Any], what: str) -> Iterator[Any]:
    """Everything that a list holds; a page is asked for when its first entry is wanted."""
    token = ""
    while True:
        answer = page(token)
        yield from getattr(answer, what) or []
        token = answer.next_page_token
        if not token:
            return


def _reason(error: Any) -> str:
    """What the server says, without the headers around it."""
    try:
        document = json.loads(error.body)
        text = document.get("message") or document.get("error") or error.reason
    except (TypeError, ValueError, AttributeError):
        text = error.body or error.reason
    return " ".join(str(text).split())[:500]
