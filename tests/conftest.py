"""What all tests share."""

import os
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from hypothesis import settings
from moto.server import ThreadedMotoServer

# The same examples on every machine, so that a test that begins to fail tells of a change, and never of a busy machine; what nobody
# has thought of is looked for by test_fuzz.py for as long as one likes. Nothing is remembered in the checkout.
settings.register_profile("ctrflow", deadline=None, derandomize=True, database=None)
settings.load_profile("ctrflow")

# The two halves of `make test`.
HALVES = ("alone", "not alone")


def pytest_configure(config: pytest.Config) -> None:
    """Whatever ends the tests ends what they started: fixtures give back what they hold on SIGTERM and SIGHUP as on Ctrl-C."""
    own = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != own:  # a fork of a test's
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)  # once: a second one must not interrupt the ending
        raise KeyboardInterrupt(signal.Signals(number).name)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    if hasattr(config, "workerinput"):
        # pytest-xdist ends its workers by SIGINT, which a shell that starts the tests in the background has them ignore.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A choice of tests may have none for one half of `make test`."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.option.markexpr in HALVES:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture(scope="session", autouse=True)
def processes_see_what_is_installed_without_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The `test` extra brings scikit-learn and SciPy, and Keras reads both wherever it finds them.

    That takes a third of the CPU time in which a process imports TensorFlow. Tests start hundreds, and a training container has
    neither.
    """
    hidden = tmp_path_factory.mktemp("hidden")
    for name in ("scipy", "sklearn"):
        (hidden / f"{name}.py").write_text(f"raise ModuleNotFoundError('{name} is there for the tests alone', name={name!r})\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(hidden), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """A real S3 over HTTP on loopback."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of an S3 with one empty bucket, `clicks`, which the standard variables name to whoever asks."""
    for name, value in {
        "AWS_ENDPOINT_URL_S3": s3_endpoint,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    urlopen(Request(f"{s3_endpoint}/moto-api/reset", method="POST")).close()
    client = boto3.client("s3")
    client.create_bucket(Bucket="clicks")
    return client
