"""What parameter servers would hold is even, or refused by name."""

import re

import pytest

from components.errors import InvalidConfig
from components.train.program.config import TrainConfig
from components.train.program.flat_weights import cuts
from components.train.program.servers import check_balance


@pytest.mark.parametrize(
    ("length", "parts", "expected"), [(9, 1, [0, 9]), (10, 2, [0, 5, 10]), (10, 3, [0, 3, 6, 10]), (2, 3, [0, 0, 1, 2])]
)
def test_a_vector_is_cut_evenly(length: int, parts: int, expected: list[int]) -> None:
    assert cuts(length, parts) == expected


def test_servers_more_than_a_tenth_apart_are_refused() -> None:
    check_balance([100])
    check_balance([96, 104])
    with pytest.raises(InvalidConfig, match=re.escape("the 3 parameter servers would hold 90 to 110 bytes, more than 10% apart")):
        check_balance([90, 100, 110])


@pytest.mark.parametrize("probe", ["input", "compute"])
def test_a_probe_that_they_cannot_make_is_refused(probe: str) -> None:
    with pytest.raises(InvalidConfig, match=f"probe {probe}: strategy parameter_server"):
        TrainConfig(strategy="parameter_server", probe=probe)  # type: ignore[arg-type]


def test_towers_where_no_batch_is_split_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="towers 2: strategy single does not split its batch"):
        TrainConfig(towers=2)
    assert TrainConfig(strategy="parameter_server").tower_count == 1
    assert TrainConfig(strategy="tower").tower_count == 2
