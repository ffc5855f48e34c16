"""What the fast paths read is what the exact ones read, for any rows, tidy or not: nothing more, nothing less."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from components.errors import InvalidRecords
from components.examples import decode_example, encode_example
from components.preprocess.libsvm import parse_fast, parse_regular, parse_row
from components.preprocess.tfrecord import decode_many
from components.records import Batch, Schema

SCHEMA = Schema(field_size=2, feature_size=1000)
NUMBER = st.one_of(
    st.floats(width=32).map(repr),
    st.floats().map(repr),
    st.text("0123456789+-.eE", max_size=9),
    st.sampled_from(["1", "0", "-0", "007", "1.", ".5", "+1", "1e39", "1e-400", "nan", "inf", "0x1", "1_0", "", "9" * 25]),
)
LABEL = st.sampled_from(["0", "1", "-1", "+1", "1.0", "+-1", "2", "", "-0", "1e0", "01", "+"])
ID = st.one_of(st.integers(-2, 1001).map(str), st.text("0123456789+-.e", max_size=5))
SPACE = st.sampled_from([" "] * 9 + ["  ", "\t", "\v", ""])
LINE = st.builds(
    lambda label, one, first, two, second, spaces: f"{label}{spaces[0]}{one}:{first}{spaces[1]}{two}:{second}".encode(),
    LABEL, ID, NUMBER, ID, NUMBER, st.tuples(SPACE, SPACE),
)  # fmt: skip


def exact(lines: list[bytes]) -> Batch | None:
    try:
        rows = [parse_row(line, SCHEMA, "here") for line in lines]
    except InvalidRecords:
        return None
    return Batch(
        labels=np.array([row[0] for row in rows], np.float32),
        ids=np.array([row[1] for row in rows], np.int64),
        values=np.array([row[2] for row in rows], np.float32),
    )


def same(one: Batch, other: Batch) -> bool:
    pairs = ((one.labels, other.labels), (one.ids, other.ids), (one.values, other.values))
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


@settings(max_examples=1500, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=3))
def test_libsvm_that_the_fast_way_reads_is_read_the_same_by_the_exact_one(lines: list[bytes]) -> None:
    data = b"".join(line + b"\n" for line in lines)
    for fast in (parse_regular(data, SCHEMA), parse_fast(lines, SCHEMA)):
        if fast is not None:
            expected = exact(lines)
            assert expected is not None, lines
            assert same(fast, expected), lines


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["0", "1"]), st.floats(-1e9, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=5))
def test_tidy_libsvm_takes_the_fast_way(rows: list[tuple[str, float, float]]) -> None:
    data = "".join(f"{label} 3:{one!r} 7:{other!r}\n" for label, one, other in rows).encode()
    assert parse_regular(data, SCHEMA) is not None


FLOAT = st.floats(width=32)
RECORD = st.tuples(
    FLOAT, st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=3), st.lists(FLOAT, min_size=3, max_size=3)
)  # fmt: skip


def records(rows: list[tuple[float, list[int], list[float]]]) -> list[bytes]:
    return [encode_example(label, np.array(ids), np.array(values, np.float32)) for label, ids, values in rows]


def together(payloads: list[bytes]) -> Batch | None:
    ends = np.cumsum([len(payload) for payload in payloads])
    return decode_many(np.frombuffer(b"".join(payloads), np.uint8), ends - [len(each) for each in payloads], ends, 3)


def as_bits(label: float, ids: list[int], values: list[float]) -> tuple[bytes, list[int]]:
    """To compare also zeros by sign; NaNs, which are refused later, have bits that Python does not keep."""
    floats = np.array([label, *values], np.float32)
    return np.where(np.isnan(floats), np.float32("nan"), floats).tobytes(), list(ids)


def by_protobuf(payload: bytes) -> tuple[bytes, list[int]]:
    return as_bits(*decode_example(payload, 3, "here"))


@settings(max_examples=300, deadline=None)
@given(st.lists(RECORD, min_size=1, max_size=4))
def test_examples_take_the_fast_way_and_come_out_as_they_went_in(rows: list[tuple[float, list[int], list[float]]]) -> None:
    payloads = records(rows)
    batch = together(payloads)
    assert batch is not None
    found = [as_bits(batch.labels[n], batch.ids[n].tolist(), batch.values[n].tolist()) for n in range(len(rows))]
    assert found == [by_protobuf(payload) for payload in payloads]


@settings(max_examples=1500, deadline=None)
@given(RECORD, RECORD, st.data())
def test_a_changed_example_is_read_as_protobuf_reads_it_or_left_to_it(
    one: tuple[float, list[int], list[float]], other: tuple[float, list[int], list[float]], data: st.DataObject
) -> None:
    payloads = records([one, other])
    position = data.draw(st.integers(0, len(payloads[1]) - 1))
    changed = bytes([data.draw(st.integers(0, 255))])
    payloads[1] = payloads[1][:position] + changed + payloads[1][position + 1 :]
    batch = together(payloads)
    if batch is not None:
        assert as_bits(batch.labels[1], batch.ids[1].tolist(), batch.values[1].tolist()) == by_protobuf(payloads[1])
