"""Distinct tokens and collisions: counted where they are few, estimated where they are many, whatever order they come in."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from components.preprocess import collisions
from components.preprocess.collisions import TokenSketch, with_collisions
from components.preprocess.columns import Columns
from components.preprocess.fitting import Fitting, TransformConfig, nothing_counted
from components.preprocess.hashing import token_hashes
from components.preprocess.raw_rows import rows_from_cells
from components.preprocess.transform import apply


def sketch(*parts: NDArray[np.uint64]) -> TokenSketch:
    made = TokenSketch()
    for part in parts:
        made.add(part)
    return made


def test_collisions_are_the_share_of_tokens_whose_id_another_one_has() -> None:
    # In a table of 10: 3, 13 and 23 share id 3, 5 and 15 share id 5, 8 is alone.
    found = sketch(np.array([13, 3, 8], np.uint64), np.array([23, 15, 5, 3], np.uint64))
    assert found.distinct() == 6
    assert found.collision_rate(10) == 5 / 6
    assert found.collision_rate(1000) == 0
    assert TokenSketch().collision_rate(10) == TokenSketch().distinct() == 0


def test_many_tokens_are_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = token_hashes(pa.array([b"t%d" % number for number in range(4000)]), np.zeros(4000, np.uint64))
    rate = sketch(hashes).collision_rate(6000)
    assert sketch(hashes).distinct() == 4000
    monkeypatch.setattr(collisions, "SAMPLED_TOKENS", 1000)
    estimated = sketch(*np.array_split(hashes, 7))
    assert len(estimated.hashes()) == 1000
    assert estimated.distinct() == pytest.approx(4000, rel=0.1)
    assert rate == pytest.approx(1 - (1 - 1 / 6000) ** 3999, abs=0.03)
    assert estimated.collision_rate(6000) == pytest.approx(rate, abs=0.05)
    assert estimated.collision_rate(1) == 1


@given(st.lists(st.lists(st.integers(0, 60), max_size=12), max_size=8), st.integers(1, 20))
def test_the_smallest_hashes_are_kept_in_any_order(parts: list[list[int]], kept: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collisions, "SAMPLED_TOKENS", kept)
        found = sketch(*(np.array(part, np.uint64) for part in parts))
        assert found.hashes().tolist() == sorted({number for part in parts for number in part})[:kept]


def test_a_transform_tells_of_each_hashed_column_what_stood_in_the_rows() -> None:
    columns = Columns(label="y", categorical=("c", "d"))
    transform = Fitting(columns=columns, config=TransformConfig(hash_size=100)).fit(nothing_counted(columns))
    rows = rows_from_cells([[0.0] * 120, [f"t{n % 60}" for n in range(120)], ["one", None] * 60], columns)
    told = with_collisions(transform, [sketch(hashes) for hashes in apply(transform, rows).hashes])
    assert [field.distinct for field in told.categories] == [60, 1]
    # XXH64 % 100 of t0 .. t59 with seed 0, by the xxhash package of Python: so many of them share a place.
    assert told.categories[0].collision_rate == 24 / 60
    assert told.categories[1].collision_rate == 0


def test_tokens_of_rows_that_were_taken_out_do_not_count() -> None:
    columns = Columns(label="y", categorical=("c",))
    transform = Fitting(columns=columns).fit(nothing_counted(columns))
    cells = pa.array([b"a", b"b", b"", b"a"], pa.binary()).dictionary_encode()
    rows = pa.RecordBatch.from_arrays([pa.array([0.0] * 4, pa.float32()), cells], ["y", "c"])
    [hashes] = apply(transform, rows.filter(pa.array([True, False, True, True]))).hashes
    assert hashes.tolist() == [0xD24EC4F1A98C6E5B]  # of a, see test_hashing.py
