"""ctrflow ui, where it cannot begin; what it shows is in local/test_pages.py and test_mlflow_index.py."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_folder_that_is_not_there_is_one_line(said: Callable[..., Any], tmp_path: Path) -> None:
    code, _, line = said("ui", "--runs", str(tmp_path / "nowhere"))
    assert (code, line) == (
        1,
        f"ctrflow: {tmp_path}/nowhere: no such folder; ctrflow run makes it, or name the folder of runs with --runs\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_taken_is_one_line(said: Callable[..., Any], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, line = said("ui", "--runs", str(tmp_path), "--port", str(port))
    expected = f"ctrflow: port {port} of 127.0.0.1: Address already in use; choose another with --port, 0 for one that is free\n"
    assert (code, line) == (1, expected)
    assert list(tmp_path.iterdir()) == []
