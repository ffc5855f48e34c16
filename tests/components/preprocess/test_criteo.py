"""Raw Criteo rows: cells never shift, and every kind of wrong row is named by line, column and cell."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.preprocess.chunks import text_chunks
from components.preprocess.columns import Columns
from components.preprocess.criteo import CRITEO
from components.preprocess.delimited import Delimited
from components.preprocess.raw_rows import RawRows
from components.preprocess.tables import Table, open_table

TO_SCORE = CRITEO.unlabelled()
COUNTS = [str(number) for number in range(1, 14)]
CATEGORIES = [f"{number:08x}" for number in range(0xABCDEF00, 0xABCDEF00 + 26)]


def row(label: str = "1", counts: list[str] | None = None, categories: list[str] | None = None) -> str:
    return "\t".join([label, *(counts or COUNTS), *(categories or CATEGORIES)])


def replaced(cells: list[str], index: int, cell: str) -> list[str]:
    return [*cells[:index], cell, *cells[index + 1 :]]


def parse(path: Path, columns: Columns = CRITEO, *, labelled: bool = True) -> RawRows:
    """What the only chunk of a file holds."""
    [chunk] = text_chunks(path)
    return Table(columns=columns, format="criteo", labelled=labelled).raw_rows(chunk)


def cells_of(rows: RawRows) -> list[list[Any]]:
    """Cells by row, None where there is none."""
    columns = [[None if cell == b"" else cell for cell in column.to_pylist()] for column in rows.batch.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def read(path: Path) -> list[list[Any]]:
    """Rows of a file that are all fine."""
    rows = parse(path)
    assert not rows.rejects
    return cells_of(rows)


def refusals(path: Path, columns: Columns = CRITEO, *, labelled: bool = True) -> list[str]:
    return [reject.message for reject in parse(path, columns, labelled=labelled).rejects]


def written(folder: Path, *lines: str | bytes) -> Path:
    path = folder / "in.tsv"
    path.write_bytes(b"\n".join(line.encode() if isinstance(line, str) else line for line in lines))
    return path


WITHOUT_LABEL = row().removeprefix("1\t")
WHOLE = [1.0, *map(float, COUNTS), *map(str.encode, CATEGORIES)]


def test_a_cell_is_a_label_a_number_or_bytes(tmp_path: Path) -> None:
    path = written(tmp_path, row(), row(label="0"))
    assert read(path) == [WHOLE, [0.0, *WHOLE[1:]]]
    assert parse(path).numbers.tolist() == [1, 2]


def test_missing_cells_are_none(tmp_path: Path) -> None:
    assert read(written(tmp_path, "0" + "\t" * 39)) == [[0.0] + [None] * 39]


def test_cells_do_not_shift_at_a_missing_first_or_last_cell(tmp_path: Path) -> None:
    first = row(counts=replaced(COUNTS, 0, ""))
    last = row(categories=replaced(replaced(CATEGORIES, 25, ""), 24, ""))
    whole, without_first, without_last = read(written(tmp_path, row(), first, last))
    assert whole == WHOLE
    assert without_first == [1.0, None, *WHOLE[2:]]
    assert without_last == [*WHOLE[:38], None, None]


def test_a_row_that_lost_its_trailing_tabs_is_completed(tmp_path: Path) -> None:
    padded = row(categories=[*CATEGORIES[:22], "", "", "", ""])
    bare = row(categories=["", *[""] * 25])
    parsed = parse(written(tmp_path, padded, padded.rstrip("\t"), bare, bare.rstrip("\t")))
    assert cells_of(parsed) == [[*WHOLE[:36], *[None] * 4]] * 2 + [[*WHOLE[:14], *[None] * 26]] * 2
    assert parsed.completed == 2
    assert not parsed.rejects


def test_counts_below_zero_keep_their_sign_and_zero_is_a_count(tmp_path: Path) -> None:
    [cells] = read(written(tmp_path, row(counts=["-2", "0", "-0", "007", "9" * 18, "-" + "9" * 18, *COUNTS[6:]])))
    assert cells[1:7] == [-2.0, 0.0, 0.0, 7.0, 1e18, -1e18]


def test_a_category_is_any_text(tmp_path: Path) -> None:
    odd = ["北京", "a b", " ", "NA", "1.5", "ab" * 50, "ABCDEF06", "é", '"quoted', "a,b", *CATEGORIES[10:]]
    assert read(written(tmp_path, row(categories=odd))) == [[*WHOLE[:14], *(token.encode() for token in odd)]]


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    parsed = parse(written(tmp_path, row(), "", "  ", row(), "", ""))
    assert cells_of(parsed) == [WHOLE] * 2
    assert parsed.numbers.tolist() == [1, 4]
    for lines in (["", WITHOUT_LABEL], [WITHOUT_LABEL, "", ""], [WITHOUT_LABEL, "", WITHOUT_LABEL]):
        parsed = parse(written(tmp_path, *lines), TO_SCORE, labelled=False)
        assert parsed.numbers.tolist() == [number for number, line in enumerate(lines, 1) if line]


def test_line_ends_of_windows_are_no_cells(tmp_path: Path) -> None:
    path = tmp_path / "in.tsv"
    path.write_bytes(f"{row()}\r\n{row()}\r\n".encode())
    assert read(path) == [WHOLE] * 2


def test_many_rows_come_back_in_order(tmp_path: Path) -> None:
    lines = [row(label=str(number % 2), counts=[str(number), *COUNTS[1:]]) for number in range(5000)]
    found = read(written(tmp_path, *lines))
    assert [cells[:2] for cells in found] == [[number % 2, number] for number in range(5000)]


def test_wrong_rows_leave_the_others_as_they_are(tmp_path: Path) -> None:
    """Of any width, and with the numbers of their lines."""
    lines = [row(), row(label="7"), row(), "1\t2", row(counts=replaced(COUNTS, 2, "x")), row().rstrip("\t"), row()]
    parsed = parse(written(tmp_path, *lines))
    assert cells_of(parsed) == [WHOLE] * 4
    assert parsed.numbers.tolist() == [1, 3, 6, 7]
    assert [(reject.number, reject.reason) for reject in parsed.rejects] == [(2, "label"), (4, "columns"), (5, "cell")]
    # Rows of the right width are first read all together.
    parsed = parse(written(tmp_path, *lines[:3], *lines[4:]))
    assert [(reject.number, reject.reason) for reject in parsed.rejects] == [(2, "label"), (4, "cell")]
    assert parsed.numbers.tolist() == [1, 3, 5, 6]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (WITHOUT_LABEL, "40 columns expected (with label), 39 found"),
        ("\t" + "\t".join(WITHOUT_LABEL.split("\t")[1:]), "40 columns expected (with label), 39 found"),
        ("\t" * 38, "40 columns expected (with label), 39 found"),
        (
            "\t".join(WITHOUT_LABEL.split("\t")[:37]),
            "40 columns expected (with label), 37 found; the label is missing (such rows can",
        ),
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
        (row(counts=replaced(COUNTS, 12, "-" + "9" * 19)), f"column I13: '-{'9' * 19}' has more than 18 digits"),
        (row(counts=replaced(COUNTS, 12, "9" * 9000)), f"column I13: '{'9' * 40}'... (9000 bytes) has more than 18 digits"),
    ],
)
def test_a_wrong_row_is_named_by_file_line_column_and_cell(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path, row(), "", line, row(label="worse"), "1\t2")
    found = refusals(path)
    assert found[0].startswith(f"{path}, line 3: {reason}")
    assert len(found[0]) < 400
    assert [message.split(":")[0] for message in found[1:]] == [f"{path}, line 4", f"{path}, line 5"]


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
    path = written(tmp_path, line, row())
    [message] = refusals(path)
    assert message.startswith(f"{path}, line 1: ")
    assert kind in message


def test_damaged_utf8_is_a_category_like_any_other_and_shown_escaped_in_a_refusal(tmp_path: Path) -> None:
    good, bad = row(categories=["X", *CATEGORIES[1:]]).encode(), row(counts=["X", *COUNTS[1:]]).encode()
    assert read(written(tmp_path, good.replace(b"X", b"\xff\xfe"))) == [[*WHOLE[:14], b"\xff\xfe", *WHOLE[15:]]]
    [message] = refusals(written(tmp_path, bad.replace(b"X", b"\xff\xfe")))
    assert "column I1: '\\\\xff\\\\xfe' is not a whole number" in message


def test_rows_to_score_have_no_label_or_one_that_is_passed_over(tmp_path: Path) -> None:
    short = WITHOUT_LABEL.rsplit("\t", 2)[0]
    bare = parse(written(tmp_path, WITHOUT_LABEL, short, "", "\t" * 38), TO_SCORE, labelled=False)
    assert [cells[1:] for cells in cells_of(bare)] == [WHOLE[1:], [*WHOLE[1:38], None, None], [None] * 39]
    assert (bare.numbers.tolist(), bare.completed, bare.rejects) == ([1, 2, 4], 1, ())
    with_label = parse(written(tmp_path, row(label="?"), row()), TO_SCORE)
    assert [cells[1:] for cells in cells_of(with_label)] == [WHOLE[1:]] * 2
    for rows in (bare, with_label):
        assert all(label != label for label in rows.batch.column(0).to_pylist())


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (row(), "39 columns expected (without label), 40 found; the label stands there: all rows must have one, or none"),
        ("\t" * 39, "39 columns expected (without label), 40 found"),
        (WITHOUT_LABEL.rsplit("\t", 27)[0], "39 columns expected (without label), 12 found"),
        ("x" + WITHOUT_LABEL, "column I1: 'x1' is not a whole number"),
        (WITHOUT_LABEL.replace("\t", ","), "39 columns expected (without label), 1 found; cells must be separated by tabs"),
    ],
)
def test_a_wrong_row_to_score_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path, WITHOUT_LABEL, line)
    [message] = refusals(path, TO_SCORE, labelled=False)
    assert message.startswith(f"{path}, line 2: {reason}")


@pytest.mark.parametrize("line", [row(), WITHOUT_LABEL])
def test_rows_without_label_in_the_place_of_labelled_ones_are_refused_and_the_other_way_round(tmp_path: Path, line: str) -> None:
    path, labelled = written(tmp_path, line), line == row()
    assert not refusals(path, TO_SCORE, labelled=labelled)
    assert "label" in refusals(path, TO_SCORE, labelled=not labelled)[0]


@pytest.mark.parametrize(
    ("lines", "labelled"),
    [([row()], True), (["", "  ", row()], True), ([WITHOUT_LABEL, row()], False), ([""], False)],
)
def test_the_first_row_to_score_tells_whether_labels_are_there(tmp_path: Path, lines: list[str], labelled: bool) -> None:
    path = written(tmp_path, *lines, "")
    packed = tmp_path / "in.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for each in (path, packed):
        assert open_table(TO_SCORE, "criteo", Delimited(), [each]).labelled == labelled
        assert open_table(CRITEO, "criteo", Delimited(), [each]).labelled


def test_what_the_split_is_by_is_text(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        row(),
        row(categories=["", *CATEGORIES[1:]]),
        row(categories=["X", *CATEGORIES[1:]]).encode().replace(b"X", b"\xff"),
    )
    texts = parse(path, replace(CRITEO, split="C1")).batch.column(40)
    assert texts.to_pylist() == [CATEGORIES[0], None, "\\xff"]
