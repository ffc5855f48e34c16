"""LibFFM: pairs stand in the places of their fields, and every kind of wrong row is named by line and word."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import InvalidConfig
from components.preprocess.libffm import FieldLayout, FieldRows, largest_field, parse_libffm
from components.records import Schema, check_batch

LAYOUT = FieldLayout(fields=3)


def parsed(*lines: str | bytes, layout: FieldLayout = LAYOUT, id_base: int = 0) -> FieldRows:
    schema = Schema(field_size=layout.field_size, feature_size=21, id_base=id_base)
    texts = [line.encode() if isinstance(line, str) else line for line in lines]
    return parse_libffm(list(enumerate(texts, 1)), layout, schema, "day1.ffm")


def test_pairs_stand_in_the_places_of_their_fields_and_the_rest_adds_nothing() -> None:
    found = parsed("1 0:5:0.5 1:6:1 2:7:-2e-1", "-1\t2:20:1   0:3:.25 ", "+1", "0.0 1:9:3")
    assert found.rejects == ()
    assert found.numbers.tolist() == [1, 2, 3, 4]
    assert found.rows.labels.tolist() == [1, 0, 1, 0]
    assert found.rows.ids.tolist() == [[5, 6, 7], [3, 0, 20], [0, 0, 0], [0, 9, 0]]
    np.testing.assert_array_equal(found.rows.values, np.float32([[0.5, 1, -0.2], [0.25, 0, 1], [0, 0, 0], [0, 3, 0]]))
    assert [array.dtype.name for array in (found.rows.labels, found.rows.ids, found.rows.values)] == ["float32", "int64", "float32"]


def test_fields_and_ids_may_start_at_1() -> None:
    found = parsed("1 1:1:1 3:21:1", layout=FieldLayout(fields=3, field_base=1), id_base=1)
    assert found.rows.ids.tolist() == [[0, 0, 20]]
    assert found.rows.values.tolist() == [[1, 0, 1]]


def test_a_field_may_have_several_values_where_that_is_declared() -> None:
    found = parsed("1 0:5:1 2:7:1 0:6:2", "0 1:1:1", layout=FieldLayout(fields=3, values_per_field=2))
    assert found.rows.ids.tolist() == [[5, 6, 0, 0, 7, 0], [0, 0, 1, 0, 0, 0]]
    assert found.rows.values.tolist() == [[1, 2, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("line", "kind", "sentence"),
    [
        ("2 0:1:1", "label", "label '2' is none of 0, 1, -1, +1"),
        ("nan 0:1:1", "label", "label 'nan' is none of"),
        ("0_1 0:1:1", "label", "label '0_1' is none of"),
        ("1 5:1 6:1", "pair", "'5:1' is not field:id:value with a whole field and id and a number; this looks like LibSVM"),
        ("1 0:1:x", "pair", "'0:1:x' is not field:id:value"),
        ("1 0:1.5:1", "pair", "'0:1.5:1' is not field:id:value"),
        ("1 0:1_0:1", "pair", "'0:1_0:1' is not field:id:value"),
        ("1 0:1:1:1", "pair", "'0:1:1:1' is not field:id:value"),
        ("1 ０:1:1", "pair", "'０:1:1' is not field:id:value"),
        ("1 3:1:1", "pair", "field 3 is outside 0..2; raise --field-size or check the field base"),
        ("1 -1:1:1", "pair", "field -1 is outside 0..2"),
        ("1 0:21:1", "id", "id 21 is outside 0..20; raise --feature-size or check --id-base"),
        ("1 0:-1:1", "id", "id -1 is outside 0..20"),
        ("1 0:9223372036854775808:1", "id", "id 9223372036854775808 is outside 0..20"),
        (f"1 0:{'9' * 50}:1", "id", f"id {'9' * 40} is outside 0..20"),
        ("1 0:1:nan", "value", "value in '0:1:nan' is not finite as float32"),
        ("1 0:1:-inf", "value", "value in '0:1:-inf' is not finite"),
        ("1 0:1:1e39", "value", "value in '0:1:1e39' is not finite"),
        ("1 0:1:1e999", "value", "value in '0:1:1e999' is not finite"),
        ("1 0:1:1 0:2:1", "repeated field", "field 0 stands twice in the row; declare how many values a field may have"),
    ],
)
def test_a_wrong_row_is_named_among_right_ones(line: str, kind: str, sentence: str) -> None:
    found = parsed("1 0:1:1", line, "0 1:2:1")
    assert [(reject.number, reject.reason) for reject in found.rejects] == [(2, kind)]
    assert found.rejects[0].message.startswith(f"day1.ffm, line 2: {sentence}")
    assert found.numbers.tolist() == [1, 3]
    assert found.rows.ids.tolist() == [[1, 0, 0], [0, 2, 0]]


PAIR = st.tuples(st.integers(0, 3), st.integers(0, 21), st.floats(width=32, allow_nan=False, allow_infinity=False))


@given(st.lists(st.tuples(st.sampled_from(["0", "1", "-1", "+1"]), st.lists(PAIR, max_size=5)), max_size=6))
def test_rows_mean_the_same_alone_and_among_others(table: list[tuple[str, list[tuple[int, int, float]]]]) -> None:
    """Expected from the numbers that were written; a wrong one among them sends all of them the slow way."""
    layout = FieldLayout(fields=3, values_per_field=2)
    lines = [" ".join([label, *(f"{field}:{row_id}:{value!r}" for field, row_id, value in pairs)]) for label, pairs in table]
    expected_ids, expected_values, wrong = [], [], []
    for number, (_, pairs) in enumerate(table, 1):
        places: dict[int, list[tuple[int, float]]] = {0: [], 1: [], 2: [], 3: []}
        for field, row_id, value in pairs:
            places[field].append((row_id, value))
        if places[3] or any(len(found) > 2 for found in places.values()) or any(row_id > 20 for _, row_id, _ in pairs):
            wrong.append(number)
            continue
        slots = [slot for field in range(3) for slot in (places[field] + [(0, 0.0)] * 2)[:2]]
        expected_ids.append([row_id for row_id, _ in slots])
        expected_values.append([value for _, value in slots])
    found = parsed(*lines, layout=layout)
    assert [reject.number for reject in found.rejects] == wrong
    assert found.rows.ids.tolist() == expected_ids
    assert found.rows.values.tolist() == expected_values
    check_batch(found.rows, Schema(field_size=6, feature_size=21), "rows")


@given(
    st.lists(st.binary(min_size=1, max_size=20) | st.text(st.sampled_from("01 :.-e+9"), max_size=20).map(str.encode), max_size=5)
)
def test_any_bytes_are_rows_or_refused(lines: list[bytes]) -> None:
    lines = [line for line in lines if line.strip()]
    found = parsed(*lines)
    assert sorted([*found.numbers.tolist(), *(reject.number for reject in found.rejects)]) == list(range(1, len(lines) + 1))
    alone = [parsed(line) for line in lines]
    assert sum(len(each.rejects) for each in alone) == len(found.rejects)
    assert found.rows.ids.tolist() == [row for each in alone for row in each.rows.ids.tolist()]


def test_the_largest_field_of_some_lines() -> None:
    assert largest_field([b"1 0:1:1 7:2:1", b"0 3:1:1 nonsense 99"]) == 7
    assert largest_field([b"1"]) == -1


@pytest.mark.parametrize(
    ("fields", "field_base", "values", "reason"),
    [
        (0, 0, 1, "fields 0: at least 1"),
        (3, 2, 1, "field_base 2: must be 0 or 1"),
        (3, 0, 0, "values_per_field 0: at least 1"),
        (60_000, 0, 2, "60000 fields of 2 values: at most 100000 places a row"),
    ],
)
def test_layouts(fields: int, field_base: int, values: int, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        FieldLayout(fields=fields, field_base=field_base, values_per_field=values)
    assert reason in str(caught.value)
