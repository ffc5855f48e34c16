"""LibSVM: what scikit-learn reads is read the same, and every kind of wrong row is named by line and token."""

import io
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from components.errors import InvalidRecords
from components.preprocess.chunks import text_chunks
from components.preprocess.libsvm import parse_fast, parse_libsvm, peek_pairs, repeated_ids
from components.preprocess.parsed import rows_of
from components.records import Batch, Schema, concatenate

SCHEMA = Schema(field_size=3, feature_size=21)


def read(path: Path, schema: Schema = SCHEMA) -> Batch:
    batches = (rows_of(lambda each: parse_libsvm(each, schema, skip=False), chunk) for chunk in text_chunks(path))
    return concatenate(batches, schema.field_size)


def written(folder: Path, content: str | bytes) -> Path:
    (folder / "in.libsvm").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / "in.libsvm"


def test_untidy_but_legal_rows(tmp_path: Path) -> None:
    batch = read(
        written(
            tmp_path,
            "# day 1\n+1 2:0.5 7:1 19:1\n\n-1 3:1 \t 11:2.25 20:1   \n1.0\t5:1\t6:1e-3\t20:1 # note\n"
            " 0 1:0 2:-0.125 19:1\n   \n-1 20:+1. 4:.5 9:1E0#end",
        )
    )
    assert batch.labels.tolist() == [1, 0, 1, 0, 0]
    assert batch.ids.tolist() == [[2, 7, 19], [3, 11, 20], [5, 6, 20], [1, 2, 19], [20, 4, 9]]
    assert batch.values.tolist() == [[0.5, 1, 1], [1, 2.25, 1], [1, float(np.float32(1e-3)), 1], [0, -0.125, 1], [1, 0.5, 1]]
    assert [array.dtype.name for array in (batch.labels, batch.ids, batch.values)] == ["float32", "int64", "float32"]


def test_the_same_rows_as_scikit_learn(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    lines = []
    for _ in range(300):
        ids = np.sort(random.choice(21, 3, replace=False))
        pairs = " ".join(f"{i}:{random.normal() * 10.0 ** random.integers(-30, 30):.{random.integers(1, 17)}g}" for i in ids)
        lines.append(f"{random.choice(['0', '1', '-1', '+1'])} {pairs}")
    text = "\n".join(lines).encode()
    dense, labels = load_svmlight_file(io.BytesIO(text), n_features=21, zero_based=True)
    batch = read(written(tmp_path, text))
    rows = np.zeros((300, 21), np.float32)
    np.put_along_axis(rows, batch.ids, batch.values, axis=1)
    np.testing.assert_array_equal(rows, dense.toarray().astype(np.float32))
    np.testing.assert_array_equal(batch.labels, (labels > 0).astype(np.float32))


def test_ids_declared_1_based_are_stored_0_based(tmp_path: Path) -> None:
    zero = read(written(tmp_path, "1 0:1 3:1 20:1\n0 1:1 4:1 7:1\n"))
    one = read(written(tmp_path, "1 1:1 4:1 21:1\n0 2:1 5:1 8:1\n"), Schema(field_size=3, feature_size=21, id_base=1))
    assert zero.ids.tolist() == one.ids.tolist() == [[0, 3, 20], [1, 4, 7]]


GOOD = "1 1:1 2:1 3:1"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2 1:1 2:1 3:1", "label '2' is none of 0, 1, -1, +1"),
        ("0.5 1:1 2:1 3:1", "label '0.5' is none of"),
        ("nan 1:1 2:1 3:1", "label 'nan' is none of"),
        ("inf 1:1 2:1 3:1", "label 'inf' is none of"),
        ("0_0 1:1 2:1 3:1", "label '0_0' is none of"),
        ("1,0 1:1 2:1 3:1", "label '1,0' is none of"),
        ("one 1:1 2:1 3:1", "label 'one' is none of"),
        ("1:1 2:1 3:1", "label '1:1' is none of"),
        ("１ 1:1 2:1 3:1", "label '１' is none of"),
        ("1 1:1 2:1 21:1", "id 21 is outside 0..20; raise --feature-size or check --id-base"),
        ("1 1:1 2:1 -3:1", "id -3 is outside 0..20; check --id-base"),
        ("1 1:1 2:1 9223372036854775808:1", "id 9223372036854775808 is outside 0..20"),
        ("1 1:1 2:1 -9223372036854775809:1", "id -9223372036854775809 is outside 0..20"),
        ("1 1:1 2:1 18446744073709551619:1", "id 18446744073709551619 is outside 0..20"),
        ("1 1:1 2:1 " + "9" * 5000 + ":1", "id " + "9" * 40 + " is outside 0..20"),
        ("1 1:1 2:1 3:nan", "value in '3:nan' is not finite as float32"),
        ("1 1:1 2:1 3:-inf", "value in '3:-inf' is not finite as float32"),
        ("1 1:1 2:1 3:Infinity", "value in '3:Infinity' is not finite as float32"),
        ("1 1:1 2:1 3:1e39", "value in '3:1e39' is not finite as float32"),
        ("1 1:1 2:1 3:1e400", "value in '3:1e400' is not finite as float32"),
        ("1 1:1 2:1 3:4:1", "'3:4:1' looks like LibFFM (field:id:value)"),
        ("1 1:1 2:1 3::1", "'3::1' is not id:value"),
        ("1 1:1 2:1 3:1:", "'3:1:' is not id:value"),
        ("1 1:1 2:1 3:1:2:3", "'3:1:2:3' is not id:value"),
        ("1 qid:7 2:1 3:1", "'qid:7' is a query id of LibSVM ranking data"),
        ("1 1:1 2:1", "2 fields, field_size is 3"),
        ("1 1:1 2:1 3:1 4:1", "4 fields, field_size is 3"),
        ("1", "0 fields, field_size is 3"),
        ("1 1:1 2:1 1_9:1", "'1_9:1' is not id:value"),
        ("1 1:1 2:1 3:1_000", "'3:1_000' is not id:value"),
        ("1 1:1 2:1 3.0:1", "'3.0:1' is not id:value"),
        ("1 1:1 2:1 3e0:1", "'3e0:1' is not id:value"),
        ("1 1:1 2:1 0x3:1", "'0x3:1' is not id:value"),
        ("1 1:1 2:1 3:0x1p3", "'3:0x1p3' is not id:value"),
        ("1 1:1 2:1 ３:1", "'３:1' is not id:value"),
        ("1 1:1 2:1 3:１", "'3:１' is not id:value"),
        ("1 1:1 2:1 3:1,5", "'3:1,5' is not id:value"),
        ("1 1:1 2:1 3:", "'3:' is not id:value"),
        ("1 1:1 2:1 :3", "':3' is not id:value"),
        ("1 1:1 2:1 :", "':' is not id:value"),
        ("1 1:1 2:1 3", "'3' is not id:value"),
        ("1 1:1 2:1 3 : 1", "'3' is not id:value"),
        ("1 1:1 2:1 a:1", "'a:1' is not id:value"),
        ("1 1:1 2:1 3:1\N{NO-BREAK SPACE}", "'3:1\\xa0' is not id:value"),
        ("1 2:1 3:1 2:1", "id 2 stands more than once in the row"),
        ("1\t5\t6\t7", "'5' is not id:value"),
        ("0," * 39 + "1", "label '" + "0," * 20 + "'... (79 bytes) is none of 0, 1, -1, +1; this looks like CSV"),
        (
            "1\t" + "5\t" * 13 + "68fd1e64\t" * 25 + "ab",
            "'5' is not id:value with a whole id and a number; this looks like raw Criteo",
        ),
        ("1 |user a b", "'|user' is not id:value with a whole id and a number; this looks like Vowpal Wabbit"),
    ],
)
def test_a_wrong_row_is_named_by_file_line_and_token(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path, f"# comment\n{GOOD}\n{line}\n{GOOD}\nworse\n")
    with pytest.raises(InvalidRecords) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 3: {reason}")
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_wrong_bytes_are_shown_escaped(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecords, match=r"line 1: label '\\\\xff\\\\xfd' is none of"):
        read(written(tmp_path, b"\xff\xfd 1:1 2:1 3:1\n"))


def test_a_row_over_two_lines_is_not_put_together(tmp_path: Path) -> None:
    # Both lines together hold as many tokens as two rows.
    with pytest.raises(InvalidRecords, match="line 1: '0' is not id:value"):
        read(written(tmp_path, "1 1:1 2:1 3:1 0 1:1 2:1\n3:1\n"))


def test_an_id_may_be_repeated_with_value_zero_to_fill_a_row_up(tmp_path: Path) -> None:
    assert read(written(tmp_path, "1 7:1 0:0 0:0\n0 5:1 5:0 6:2\n")).ids.tolist() == [[7, 0, 0], [5, 5, 6]]


def test_repeated_ids() -> None:
    ids = np.array([[1, 2, 3], [1, 2, 1], [0, 0, 5], [-1, -2, 0]])
    values = np.array([[1, 1, 1], [1, 1, 2], [0, 0, 1], [0, 0, 0]], np.float32)
    assert repeated_ids(ids, values).tolist() == [False, True, False, False]


@pytest.mark.parametrize(("declared", "line", "found"), [(0, 3, 21), (1, 1, 0)])
def test_a_wrong_base_shows_at_the_edges_of_the_table(tmp_path: Path, declared: int, line: int, found: int) -> None:
    path = written(tmp_path, "1 0:1 3:1 6:1\n0 1:1 4:1 7:1\n1 2:1 5:1 21:1\n" if declared else "1 1:1 3:1 6:1\n\n1 2:1 5:1 21:1\n")
    last = 20 + declared
    with pytest.raises(InvalidRecords, match=f"line {line}: id {found} is outside {declared}..{last}"):
        read(path, Schema(field_size=3, feature_size=21, id_base=declared))


def test_good_rows_take_the_fast_way() -> None:
    batch = parse_fast([b"-1 1:2 3:.5 4:1e2", b"+1\t0:1  2:1 20:0 "], SCHEMA)
    assert batch is not None
    assert (batch.labels.tolist(), batch.ids.tolist()) == ([0, 1], [[1, 3, 4], [0, 2, 20]])
    assert batch.values.tolist() == [[2, 0.5, 100], [1, 1, 0]]


def test_an_overflow_is_no_warning_beside_the_refusal(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(InvalidRecords, match="1e39"):
        read(written(tmp_path, "1 1:1 2:1 3:1e39\n"))
    assert not recwarn.list


def test_the_width_is_taken_from_the_first_row(tmp_path: Path) -> None:
    assert peek_pairs(written(tmp_path, "# x\n\n1 1:1 2:1 # 3:1\n1 1:1\n")) == 2


def test_the_width_is_not_taken_from_a_row_that_is_none(tmp_path: Path) -> None:
    assert peek_pairs(written(tmp_path, "label id value weight\n1 1:1 x\n1 1:1 2:1\n0 1:1\n")) == 2
    assert peek_pairs(written(tmp_path, "label id value weight\n1 1:1 x\n")) == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("1\n", "line 1: 0 fields in '1'; every row needs as many, give --field-size"),
        ("label,I1,I2\n1,2,3\n", "line 1: 0 fields in 'label,I1,I2'; this looks like CSV"),
        ("# nothing\n\n", "no rows in it"),
    ],
)
def test_no_width_can_be_taken(tmp_path: Path, content: str, reason: str) -> None:
    with pytest.raises(InvalidRecords, match=reason):
        peek_pairs(written(tmp_path, content))
