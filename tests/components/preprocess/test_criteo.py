"""Raw Criteo rows: cells never shift, and every kind of wrong row is named by line, column and cell."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.chunks import text_chunks
from components.preprocess.criteo import FIELD_SIZE, CriteoParser, category_id
from components.preprocess.parsed import Parsed, rows_of
from components.records import Batch, Schema, concatenate

SCHEMA = Schema(field_size=FIELD_SIZE, feature_size=1000)
COUNTS = [str(number) for number in range(1, 14)]
CATEGORIES = [f"{number:08x}" for number in range(0xABCDEF00, 0xABCDEF00 + 26)]


def row(label: str = "1", counts: list[str] | None = None, categories: list[str] | None = None) -> str:
    return "\t".join([label, *(counts or COUNTS), *(categories or CATEGORIES)])


def replaced(cells: list[str], index: int, cell: str) -> list[str]:
    return [*cells[:index], cell, *cells[index + 1 :]]


def parse(path: Path) -> Parsed:
    """What the only chunk of a file holds."""
    [chunk] = text_chunks(path)
    return CriteoParser(SCHEMA).parse(chunk, skip=False)


def read(path: Path) -> Batch:
    parser = CriteoParser(SCHEMA)
    return concatenate((rows_of(lambda each: parser.parse(each, skip=False), chunk) for chunk in text_chunks(path)), FIELD_SIZE)


def written(folder: Path, *lines: str | bytes) -> Path:
    path = folder / "in.tsv"
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return path


def test_the_id_table(tmp_path: Path) -> None:
    batch = read(written(tmp_path, row()))
    assert batch.labels.tolist() == [1]
    assert batch.ids[0, :13].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24]
    np.testing.assert_array_equal(batch.values[0, :13], np.array([math.log(1 + number) for number in range(1, 14)], np.float32))
    # By the documented rule: BLAKE2b of the token, 8 bytes, the column as salt, little-endian, over the ids after the reserved 52.
    salted = hashlib.blake2b(b"abcdef02", digest_size=8, salt=bytes([2]) + bytes(15)).digest()
    assert batch.ids[0, 13 + 2] == 52 + int.from_bytes(salted, "little") % (1000 - 52)
    assert batch.values[0, 13:].tolist() == [1] * 26


def test_missing_cells_have_ids_of_their_own(tmp_path: Path) -> None:
    parsed = parse(written(tmp_path, "0" + "\t" * 39))
    batch = parsed.batch
    assert batch.labels.tolist() == [0]
    assert batch.ids[0].tolist() == [2 * column + 1 for column in range(13)] + [26 + column for column in range(26)]
    assert batch.values[0].tolist() == [1] * 39
    assert parsed.missing == 39


def test_cells_do_not_shift_at_a_missing_first_or_last_cell(tmp_path: Path) -> None:
    first = row(counts=replaced(COUNTS, 0, ""))
    last = row(categories=replaced(replaced(CATEGORIES, 25, ""), 24, ""))
    whole, without_first, without_last = read(written(tmp_path, row(), first, last)).ids
    assert without_first.tolist() == [1, *whole[1:]]
    assert without_last.tolist() == [*whole[:37], 26 + 24, 26 + 25]


def test_a_row_that_lost_its_trailing_tabs_is_completed(tmp_path: Path) -> None:
    padded = row(categories=[*CATEGORIES[:22], "", "", "", ""])
    bare = row(categories=["", *[""] * 25])
    parsed = parse(written(tmp_path, padded, padded.rstrip("\t"), bare, bare.rstrip("\t")))
    batch = parsed.batch
    assert batch.ids[0].tolist() == batch.ids[1].tolist()
    assert batch.ids[2].tolist() == batch.ids[3].tolist()
    assert parsed.completed == 2
    assert parsed.missing == 4 + 4 + 26 + 26


def test_counts_below_zero_keep_their_sign_and_zero_is_a_count(tmp_path: Path) -> None:
    batch = read(written(tmp_path, row(counts=["-2", "0", "-0", "007", "9" * 18, *COUNTS[5:]])))
    expected = [-math.log(3), 0.0, 0.0, math.log(8), math.log(10**18)]
    np.testing.assert_allclose(batch.values[0, :5], expected, rtol=1e-6)
    assert batch.ids[0, :5].tolist() == [0, 2, 4, 6, 8]


def test_a_category_is_any_text_and_depends_on_its_column(tmp_path: Path) -> None:
    odd = ["北京", "a b", " ", "NA", "1.5", "ab" * 50, "ABCDEF06", "é", *CATEGORIES[8:25], "same"]
    batch = read(written(tmp_path, row(categories=odd), row(categories=["same", *odd[1:]])))
    assert batch.ids[0, 13:].tolist() == [category_id(column, token.encode(), 1000) for column, token in enumerate(odd)]
    assert category_id(0, b"same", 2**31 - 1) != category_id(25, b"same", 2**31 - 1)
    assert batch.ids[:, 13:].min() >= 52
    assert batch.ids[:, 13:].max() < 1000


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    assert len(read(written(tmp_path, row(), "", "  ", row(), "", ""))) == 2


def test_many_rows_come_back_in_order(tmp_path: Path) -> None:
    lines = [row(label=str(number % 2), counts=[str(number), *COUNTS[1:]]) for number in range(5000)]
    batch = read(written(tmp_path, *lines))
    np.testing.assert_array_equal(batch.labels, np.arange(5000) % 2)
    np.testing.assert_allclose(batch.values[:, 0], np.log1p(np.arange(5000)), rtol=1e-6)


WITHOUT_LABEL = row().removeprefix("1\t")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (WITHOUT_LABEL, "40 columns expected (with label), 39 found"),
        ("\t" + "\t".join(WITHOUT_LABEL.split("\t")[1:]), "40 columns expected (with label), 39 found"),
        ("\t" * 38, "40 columns expected (with label), 39 found"),
        ("\t".join(WITHOUT_LABEL.split("\t")[:37]), "40 columns expected (with label), 37 found; the label is missing"),
        (row() + "\t", "40 columns expected (with label), 41 found"),
        ("1\t2\t3", "40 columns expected (with label), 3 found"),
        ("1", "40 columns expected (with label), 1 found; cells must be separated by tabs, the line starts with '1'"),
        (row().replace("\t", " "), "40 columns expected (with label), 1 found; cells must be separated by tabs"),
        (row().replace("\t", ","), "40 columns expected (with label), 1 found"),
        ("\t" * 39, "label '' is neither 0 nor 1"),
        (row(label="2"), "label '2' is neither 0 nor 1"),
        (row(label="-1"), "label '-1' is neither 0 nor 1"),
        (row(label="0.5"), "label '0.5' is neither 0 nor 1"),
        (row(label="nan"), "label 'nan' is neither 0 nor 1"),
        (row(label=" 1"), "label ' 1' is neither 0 nor 1"),
        (row(label="１"), "label '１' is neither 0 nor 1"),
        *(
            (row(counts=replaced(COUNTS, 4, cell)), f"column I5: {cell!r} is not a whole number")
            for cell in (
                "260.0",
                "1e3",
                "1_000",
                " 5",
                "5 ",
                "+5",
                "--5",
                "-",
                "0x1f",
                "nan",
                "inf",
                "five",
                "１２",
                "1,000",
                "NULL",
            )
        ),
        (row(counts=replaced(COUNTS, 12, "9" * 19)), f"column I13: '{'9' * 19}' has more than 18 digits"),
        (row(counts=replaced(COUNTS, 12, "9" * 9000)), f"column I13: '{'9' * 40}'... (9000 bytes) has more than 18 digits"),
    ],
)
def test_a_wrong_row_is_named_by_file_line_column_and_cell(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path, row(), "", line, row(label="worse"), "1\t2")
    with pytest.raises(InvalidRecords) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 3: {reason}")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("label,I1,I2,I3", "this looks like CSV"),
        ("1 3:1 5:1", "this looks like LibSVM (label id:value), use --format libsvm"),
        ("1\t3:1\t5:1", "this looks like LibSVM (label id:value), use --format libsvm"),
        ("1 0:3:1 1:5:1", "this looks like LibFFM (label field:id:value)"),
        ("1 qid:4 3:1", "this looks like LibSVM with query ids"),
        ("1 |a b c", "this looks like Vowpal Wabbit"),
        ("\t".join(["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]), "this looks like a header line"),
    ],
)
def test_another_format_is_called_by_its_name(tmp_path: Path, line: str, kind: str) -> None:
    with pytest.raises(InvalidRecords, match=r"in\.tsv, line 1: ") as caught:
        read(written(tmp_path, line, row()))
    assert kind in str(caught.value)


def test_damaged_utf8_is_a_category_like_any_other_and_shown_escaped_in_a_refusal(tmp_path: Path) -> None:
    good, bad = row(categories=["X", *CATEGORIES[1:]]).encode(), row(counts=["X", *COUNTS[1:]]).encode()
    assert len(read(written(tmp_path, good.replace(b"X", b"\xff\xfe")))) == 1
    with pytest.raises(InvalidRecords, match=r"column I1: '\\\\xff\\\\xfe' is not a whole number"):
        read(written(tmp_path, bad.replace(b"X", b"\xff\xfe")))


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (Schema(field_size=13, feature_size=1000), "field_size 13: criteo rows have 39 fields"),
        (Schema(field_size=39, feature_size=52), "feature_size 52: criteo needs more than 52"),
    ],
)
def test_a_table_that_cannot_hold_the_rows_is_refused(schema: Schema, reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        CriteoParser(schema)
