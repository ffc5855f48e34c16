"""The lines of the README that train by SageMaker's own SDK, as they stand there."""

import importlib.util
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess
from pipelines.local.sagemaker import LocalSageMaker

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("sagemaker") is None,
    reason="no SageMaker SDK here: the extra notebook",
)
README = Path(__file__).parents[2] / "pipelines" / "README.md"


class Denied(BaseHTTPRequestHandler):
    """IAM, to somebody who may not ask what a role may do: the SDK asks, and moto cannot answer."""

    def do_POST(self) -> None:
        content = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(403)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@pytest.fixture
def iam() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Denied) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_sdk_trains_in_our_image_as_the_readme_says(s3: Any, s3_endpoint: str, iam: str, tmp_path: Path) -> None:
    (lines,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "day.libsvm").write_text("".join(f"{row % 2} {row % 7}:1 {7 + row % 3}:1\n" for row in range(4000)))
    raw = PreprocessConfig(format="libsvm", feature_size=10, shards=1, processes=1, validation_fraction=0.3)
    preprocess(raw, [str(tmp_path / "day.libsvm")], tmp_path / "day1", tmp_path / "report.html")
    for path in (each for each in (tmp_path / "day1").rglob("*") if each.is_file()):
        s3.upload_file(str(path), "clicks", f"datasets/day1/{path.relative_to(tmp_path / 'day1').as_posix()}")
    with LocalSageMaker(tmp_path / "jobs") as endpoint:
        places = {"AWS_ENDPOINT_URL": s3_endpoint, "AWS_ENDPOINT_URL_IAM": iam, "AWS_ENDPOINT_URL_SAGEMAKER": endpoint.url}
        done = subprocess.run(
            [sys.executable, "-c", lines], env={**os.environ, **places}, cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
    assert done.returncode == 0, done.stdout + done.stderr
    left = {each["Key"].rpartition("/")[2] for each in s3.list_objects_v2(Bucket="clicks", Prefix="jobs/")["Contents"]}
    assert left == {"model.tar.gz", "output.tar.gz"}
