"""SageMaker's contract on the built training image: `docker run IMAGE train` under /opt/ml; two containers are two hosts.

`make test-images` builds the image and runs this.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif("CTRFLOW_TEST_IMAGES" not in os.environ, reason="built images are tested by: make test-images")

ROOT = Path(__file__).parents[4]
SETTINGS = {"embedding_size": 8, "deep_layers": "[16, 8]", "batch_size": 32, "steps": 20, "seed": 5}
NETWORK = f"ctrflow-test-{os.getpid()}"


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    tag = subprocess.run([str(ROOT / "images" / "tag.sh")], check=True, capture_output=True, text=True).stdout.strip()
    return f"ctrflow/python-training:{tag}"


@pytest.fixture
def containers() -> Iterator[None]:
    """A network on which containers find each other by name. Containers do not end with what started them."""
    docker("network", "create", "--label", "ctrflow.test", NETWORK)
    yield
    for name in docker("ps", "-aq", "--filter", f"network={NETWORK}").split():
        docker("rm", "-f", name)
    docker("network", "rm", NETWORK)


def host(name: str, base: Path, dataset: Path, image: str) -> tuple[str, ...]:
    """One host as SageMaker starts it: its folder at /opt/ml, the data where the channel's link points, the image's own user."""
    mounts = ("-v", f"{base}:/opt/ml", "-v", f"{dataset}:{dataset}:ro")
    return ("docker", "run", "--rm", "--label", "ctrflow.test", "--network", NETWORK, "--name", f"{NETWORK}-{name}",
            "--network-alias", name, "--hostname", name, *mounts, image)  # fmt: skip


@pytest.mark.parametrize(
    ("hosts", "settings", "told"),
    [
        (1, {"strategy": "single"}, 20),
        (2, {"strategy": "horovod", "embedding_placement": "sharded"}, 20),
        # Asynchronous: no step is common to the workers, so each worker's 20 are told. The ranks of a ring share theirs.
        (2, {"strategy": "parameter_server"}, 40),
    ],
    ids=["train-as-root", "horovod-on-two-hosts", "parameter-servers-on-two-hosts"],
)
def test_containers_train_and_leave_the_model_where_sagemaker_takes_it(
    containers: None,
    image: str,
    dataset: Path,
    run_job: Callable[..., Any],
    make_network: Callable[..., Any],
    tmp_path: Path,
    hosts: int,
    settings: dict[str, object],
    told: int,
) -> None:
    names = [f"algo-{index + 1}" for index in range(hosts)]
    prefixes = tuple(host(name, tmp_path / "job0" / name, dataset, image) for name in names)
    network = make_network(addresses=tuple(names), interface="eth0", prefixes=prefixes)
    job = run_job(dataset, hosts, command=("train",), network=network, **SETTINGS, **settings)
    assert job.wait() == [0] * hosts, job.log()
    assert (job.bases[0] / "model" / "model.json").is_file()
    assert not (job.bases[0] / "output" / "failure").exists()
    losses = job.losses()
    assert len(losses) == told
    assert all(0.0 < loss < 2.0 for loss in losses)


def test_a_job_that_cannot_run_leaves_its_reason_and_a_code(
    containers: None, image: str, dataset: Path, run_job: Callable[..., Any], make_network: Callable[..., Any], tmp_path: Path
) -> None:
    prefixes = (host("algo-1", tmp_path / "job0" / "algo-1", dataset, image),)
    network = make_network(addresses=("algo-1",), interface="eth0", prefixes=prefixes)
    job = run_job(dataset, command=("train",), network=network, **SETTINGS, strategy="single", nonsense=3)
    assert job.wait() == [1], job.log()
    assert "nonsense" in job.reason()
