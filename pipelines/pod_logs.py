"""Logs of a run's steps on a cluster. The API of Kubeflow Pipelines has none, so Kubernetes is asked for those of the pods."""

from typing import Any

from components.errors import InvalidConfig
from pipelines.cluster import ClusterError
from pipelines.submission import is_step

# The step's own container in a pod of Argo's.
CONTAINER = "main"


def pods(run: Any) -> dict[str, list[str]]:
    """Names of pods by step."""
    details = (run.run_details.task_details if run.run_details else None) or []
    found: dict[str, list[str]] = {}
    for task in details:
        if task.display_name and is_step(task.display_name):
            children = [child.pod_name for child in task.child_tasks or []]
            found[task.display_name] = list(filter(None, dict.fromkeys([task.pod_name, *children])))
    return found


def read_logs(run: Any, step: str, namespace: str) -> dict[str, str]:
    """Log by step; of a step with several attempts, one after the other.

    Raises:
        InvalidConfig: no such step. ClusterError: Kubernetes cannot be asked, or has dropped the pods.
    """
    found = pods(run)
    if step and step not in found:
        raise InvalidConfig(f"run {run.run_id}: no step {step}; it has {', '.join(found) or 'none yet'}")
    return {name: "".join(_log(pod, namespace) for pod in names) for name, names in found.items() if step in ("", name)}


def _log(pod: str, namespace: str) -> str:
    import kubernetes
    from urllib3.exceptions import HTTPError

    try:
        try:
            kubernetes.config.load_incluster_config()
        except kubernetes.config.ConfigException:
            kubernetes.config.load_kube_config()
        return str(kubernetes.client.CoreV1Api().read_namespaced_pod_log(pod, namespace, container=CONTAINER))
    except kubernetes.config.ConfigException as error:
        raise ClusterError(f"logs of pod {pod}: no access to Kubernetes ({error}); kubectl config use-context") from error
    except kubernetes.client.ApiException as error:
        raise ClusterError(f"logs of pod {pod} in {namespace}: refused ({error.status}): {error.reason}; see its UI") from error
    except HTTPError as error:
        raise ClusterError(f"logs of pod {pod} in {namespace}: no answer ({error})") from error
