"""Worker processes: every item once, results with their items, failures as they were raised, and nobody left behind."""

import importlib
import math
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from components.errors import InvalidRecords, WorkflowError
from components.workers import Crew, in_processes

# A module of its own, because a worker imports what it works with by name.
SQUARES = """
import os, signal
from components.errors import InvalidRecords

class Squares:
    def __init__(self, number, refused=None):
        self.number, self.refused = number, refused

    def square(self, item):
        if item == self.refused:
            raise InvalidRecords(f"line {item}")
        return item * item

    def who(self, _):
        return self.number, os.getpid()

    def die(self, _):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def squares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "squares_of_workers.py").write_text(SQUARES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    yield importlib.import_module("squares_of_workers").Squares
    sys.modules.pop("squares_of_workers")


def items_and_then_a_failure() -> Iterator[int]:
    yield from range(5)
    raise InvalidRecords("the file ended early")


@pytest.mark.parametrize("count", [1, 2])
def test_results_come_in_the_order_of_the_items_and_a_failure_of_reading_after_them(squares: Any, count: int) -> None:
    found: list[int] = []
    with Crew(squares, count) as crew:
        assert list(crew.ordered("square", range(40))) == [item * item for item in range(40)]
        with pytest.raises(InvalidRecords, match="ended early"):
            found.extend(crew.ordered("square", items_and_then_a_failure()))
    assert found == [0, 1, 4, 9, 16]


def test_each_worker_has_an_object_of_its_own_and_is_gone_afterwards(squares: Any) -> None:
    with Crew(squares, 3) as crew:
        numbers, processes = zip(*crew.each("who"), strict=True)
    assert numbers == (0, 1, 2)
    assert os.getpid() not in processes
    assert not any(psutil.pid_exists(process) for process in processes)


@pytest.mark.parametrize("count", [1, 2])
def test_what_a_worker_raises_comes_out_as_it_is(squares: Any, count: int) -> None:
    with Crew(partial(squares, refused=7), count) as crew:
        with pytest.raises(InvalidRecords, match=r"^line 7(\n|$)"):
            list(crew.ordered("square", range(20)))


def test_a_worker_that_is_killed_is_one_line(squares: Any) -> None:
    with Crew(squares, 2) as crew:
        with pytest.raises(WorkflowError, match=r"^a worker process was ended by signal 9; if the container's memory is short"):
            list(crew.ordered("die", range(4)))


@pytest.mark.parametrize("processes", [1, 2, 9])
def test_a_function_in_processes(processes: int) -> None:
    assert sorted(in_processes(math.factorial, [5, 3, 4], processes)) == [(0, 120), (1, 6), (2, 24)]
    assert list(in_processes(math.factorial, [], processes)) == []
