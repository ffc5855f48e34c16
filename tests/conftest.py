"""What all tests share."""

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO
from urllib.request import Request, urlopen

import boto3
import pytest
from hypothesis import settings
from moto.server import ThreadedMotoServer

# The same examples on every machine, so that a test that begins to fail tells of a change, and never of a busy machine; what nobody
# has thought of is looked for by test_fuzz.py for as long as one likes. Nothing is remembered in the checkout.
settings.register_profile("ctrflow", deadline=None, derandomize=True, database=None)
settings.load_profile("ctrflow")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WIDTH, HEIGHT = 1280, 800

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


class Browser:
    """One page of a headless Chromium. Commands go through fd 3, answers and events come through fd 4, a zero byte after each."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands, self._answers, self._number, self._session = commands, answers, 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        self.ask("Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT, deviceScaleFactor=1, mobile=False)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        self._commands.write(json.dumps({**message, "sessionId": self._session} if self._session else message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def _message(self) -> dict[str, Any]:
        content = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            content += byte
        return dict(json.loads(content))

    def open(self, place: Path | str) -> None:
        """Show a file or an address, and wait until it has loaded."""
        self.events.clear()
        self.ask("Page.navigate", url=place.as_uri() if isinstance(place, Path) else place)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def value(self, script: str) -> Any:
        return self.ask("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def wait_for(self, script: str, timeout_s: float = 60.0) -> None:
        """Until a script is true: pages that fill themselves have loaded long before."""
        deadline = time.monotonic() + timeout_s
        while not self.value(script):
            assert time.monotonic() < deadline, f"{script}: never true of {self.value('document.body.innerText')}"
            time.sleep(0.1)

    def screenshot(self, name: str) -> None:
        """Kept for people where $CTRFLOW_SCREENSHOTS names a folder."""
        if folder := os.environ.get("CTRFLOW_SCREENSHOTS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            picture = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
            (Path(folder) / f"{name}.png").write_bytes(base64.b64decode(picture))

    def complaints(self) -> list[dict[str, Any]]:
        """What stands in the console, and requests for anything but the page."""
        wrong = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed")
        asked = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event for event in self.events if event["method"] in wrong] + asked[1:]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real browser, over Chromium's debugging pipe; one for all tests of a process."""
    if CHROMIUM is None:
        pytest.skip("no chromium here; apt-get install chromium")
    profile = tmp_path_factory.mktemp("chromium")
    (their_in, our_out), (our_in, their_out) = os.pipe(), os.pipe()
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
    # Chromium knows the pipe by the numbers 3 and 4, which are taken here; a shell gives them to it and then is Chromium.
    command = ["/bin/bash", "-c", f'exec "$0" "$@" 3<&{their_in} 4>&{their_out}', str(CHROMIUM), *options]
    process = subprocess.Popen(command, pass_fds=[their_in, their_out], stderr=subprocess.DEVNULL, start_new_session=True)
    os.close(their_in)
    os.close(their_out)
    with os.fdopen(our_out, "wb", buffering=0) as commands, os.fdopen(our_in, "rb") as answers:
        try:
            yield Browser(commands, answers)
        finally:
            process.terminate()
            process.wait(timeout=20)
