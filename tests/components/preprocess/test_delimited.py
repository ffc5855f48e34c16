"""CSV: what Python's csv module reads is read the same, in whatever chunks, and every kind of wrong record is named."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.columns import Columns, MultiValued
from components.preprocess.delimited import Delimited, DelimitedParser, Separator, end_of_records, read_header
from components.preprocess.raw_rows import RawRows

SHARED = Path(__file__).parents[4] / "shared"
CASE, SAMPLE = SHARED / "cases" / "11-csv-unicode-quotes-NA", SHARED / "data" / "04-criteo-csv-header"
COLUMNS = Columns(label="label", numeric=("price",), categorical=("city",), multi_valued=(MultiValued(name="tags", values=2),))
NAMES = ("label", "price", "city", "tags")


def parser(names: tuple[str, ...] = NAMES, columns: Columns = COLUMNS, separator: Separator = ",") -> DelimitedParser:
    return DelimitedParser(path=Path("day1.csv"), names=names, separator=separator, columns=columns)


def rows(found: RawRows) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in found.batch.columns), strict=True))


def parsed(text: str | bytes, first: int = 2) -> RawRows:
    return parser().parse(text.encode() if isinstance(text, str) else text, first)


def test_cells_of_every_role() -> None:
    found = parsed('1,10,Paris,a|b\n-1, 1e3 ,"New ""York"", NY",\n0,,"two\nlines",|c|\n+1.0,-.5,NA,""')
    assert rows(found) == [
        (1.0, 10.0, "Paris", ["a", "b"]),
        (0.0, 1000.0, 'New "York", NY', None),
        (0.0, None, "two\nlines", ["c"]),
        (1.0, -0.5, "NA", None),
    ]
    assert found.numbers.tolist() == [2, 3, 4, 6]
    assert found.rejects == ()


@pytest.mark.parametrize(
    "text",
    ['1,2,a,x\r\n0,3,"b\r\nc",y\r\n', '1,2,a,x\r\n0,3,"b\r\nc",y', '1,2,a,x\n0,3,"b\nc",y\n\n\n', '1,2,a,x\n0,3,"b\nc",y\r'],
)
def test_line_ends_and_blank_last_lines_make_no_difference(text: str) -> None:
    plain = parsed('1,2,a,x\n0,3,"b\nc",y\n')
    assert parsed(text).batch.equals(plain.batch)
    assert parsed(text).numbers.tolist() == [2, 3]


def test_blank_lines_between_rows_count_as_lines() -> None:
    assert parsed("1,2,a,x\n\n   \n0,3,b,y\n").numbers.tolist() == [2, 5]


def test_declared_markers_are_missing_and_other_words_are_not() -> None:
    columns = Columns(label="y", numeric=("n",), categorical=("c",), missing=("NA", "-"))
    found = parser(("y", "n", "c"), columns).parse(b"1,NA,NA\n0,-,null\n1,3,None\n", 2)
    assert rows(found) == [(1.0, None, None), (0.0, None, "null"), (1.0, 3.0, "None")]


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_separators(separator: Separator) -> None:
    text = '1,2,"a,b\tc;d",x\n'.replace(",", separator, 2).replace('",x', f'"{separator}x')
    assert rows(parser(separator=separator).parse(text.encode(), 1)) == [(1.0, 2.0, "a,b\tc;d", ["x"])]


def test_the_split_column_is_read_as_text_at_the_end() -> None:
    columns = Columns(label="y", categorical=("hour",), ignored=("x",), split="hour")
    found = parser(("x", "hour", "y"), columns).parse(b"?,08,1\n", 2)
    assert rows(found) == [(1.0, "08", "08")]


@pytest.mark.parametrize(
    ("record", "kind", "sentence"),
    [
        ("1,2,a", "columns", "4 columns expected, 3 found"),
        ("1,2,a,x,y", "columns", "4 columns expected, 5 found"),
        ("2,2,a,x", "label", "column label: label '2' is none of 0, 1, -1, +1"),
        ("yes,2,a,x", "label", "column label: label 'yes' is none of"),
        ("nan,2,a,x", "label", "column label: label 'nan' is none of"),
        (",2,a,x", "missing label", "column label: the label is missing"),
        ("1,abc,a,x", "number", "column price: 'abc' is not a number"),
        ("1,1_000,a,x", "number", "column price: '1_000' is not a number"),
        ("1,0x1p3,a,x", "number", "column price: '0x1p3' is not a number"),
        ("1,１,a,x", "number", "column price: '１' is not a number"),
        ("1,nan,a,x", "number", "column price: 'nan' is not a number"),
        ("1,-inf,a,x", "number", "column price: '-inf' is not a number"),
        ("1,1e39,a,x", "number", "column price: '1e39' is not finite as float32"),
        ("1,1e999,a,x", "number", "column price: '1e999' is not finite as float32"),
        ("1, ,a,x", "number", "column price: ' ' is not a number"),
        ("1,2,a,x|y|z", "values", "column tags: 3 values in 'x|y|z', at most 2 are declared"),
        ('1,2,5" screen,x', "quotes", "a quote that neither begins nor ends a cell, or is never closed, near '1,2,5\" screen,x'"),
        ('1,2,5" x 3" screen,x', "quotes", "a quote that neither begins nor ends a cell"),
        ('1,2,"a"b,x', "quotes", "a quote that neither begins nor ends a cell"),
        ("1,2,a\0,x", "NUL", "a NUL byte; this is not a text file"),
        ("1,2,a\rb,x", "carriage return", "a carriage return inside the line"),
        (b"1,2,\xff\xfe,x", "encoding", "column city: '\\\\xff\\\\xfe' is not UTF-8; convert the file"),
        (b"1,2,a,\xe9t\xe9", "encoding", "column tags: '\\\\xe9t\\\\xe9' is not UTF-8"),
    ],
)
def test_a_wrong_record_is_named_among_right_ones(record: str | bytes, kind: str, sentence: str) -> None:
    wrong = record.encode() if isinstance(record, str) else record
    # An odd quote takes with it what follows up to the next one, so the rows after it hold none.
    good = b'0,1,"two\nlines",x\n' * 100
    found = parsed(good + wrong + b"\n" + (b"" if kind == "quotes" else good), first=2)
    assert [(reject.number, reject.reason) for reject in found.rejects] == [(202, kind)]
    assert found.rejects[0].message.startswith(f"day1.csv, line 202: {sentence}")
    assert len(found.batch) == len(found.numbers) == (100 if kind == "quotes" else 200)


def test_a_quote_that_is_never_closed_is_named_where_its_record_starts() -> None:
    found = parsed('1,2,a,x\n1,2,"a,x\n0,3,b,y\n')
    assert found.numbers.tolist() == [2]
    assert [(reject.number, reject.reason) for reject in found.rejects] == [(3, "quotes")]


def test_every_wrong_record_is_named_in_order() -> None:
    text = "".join(f"{1 if i % 50 else 7},{i},a,x\n" for i in range(1000))
    found = parsed(text, first=1)
    assert [reject.number for reject in found.rejects] == list(range(1, 1001, 50))
    assert found.numbers.tolist() == [i + 1 for i in range(1000) if i % 50]


CELL = st.text(st.sampled_from('ab,;\t"\n\r |é東0'), max_size=6)


@given(
    table=st.lists(st.tuples(st.sampled_from("01"), st.floats(width=32, allow_nan=False, allow_infinity=False), CELL), min_size=1),
    cuts=st.integers(1, 40),
    separator=st.sampled_from([",", "\t", ";"]),
)
def test_what_the_csv_module_writes_is_read_back_in_any_chunks(
    table: list[tuple[str, float, str]], cuts: int, separator: Separator
) -> None:
    file = io.StringIO(newline="")
    # The module leaves a cell with a carriage return bare when lines end otherwise; quoting texts is what it offers against that.
    quoting = csv.QUOTE_NONNUMERIC if any("\r" in text for _, _, text in table) else csv.QUOTE_MINIMAL
    csv.writer(file, delimiter=separator, lineterminator="\n", quoting=quoting).writerows(
        (int(label), n, text) for label, n, text in table
    )
    data = file.getvalue().encode()
    columns = Columns(label="y", numeric=("n",), categorical=("c",))
    reader = parser(("y", "n", "c"), columns, separator)
    whole = reader.parse(data, 1)
    assert whole.rejects == ()
    expected = [(float(label), n, text.replace("\r\n", "\n") or None) for label, n, text in table]
    assert rows(whole) == expected
    # The same in pieces that are cut where records end.
    at, line, numbers, found, waiting = 0, 1, [], [], b""
    while at < len(data):
        waiting, at = waiting + data[at : at + cuts], at + cuts
        ready = waiting[: end_of_records(waiting)]
        part = reader.parse(ready, line)
        found, numbers = found + rows(part), numbers + part.numbers.tolist()
        line, waiting = line + ready.count(b"\n"), waiting[len(ready) :]
    assert waiting == b""
    assert (found, numbers) == (expected, whole.numbers.tolist())


@given(
    data=st.binary(max_size=80) | st.text(st.sampled_from('01,"\n\r ax|.e-'), max_size=80).map(str.encode),
    copies=st.integers(1, 40),
)
def test_any_bytes_are_rows_or_refused_and_the_same_alone_as_among_others(data: bytes, copies: int) -> None:
    """What a record means must not depend on the rows around it, which decide whether pyarrow or our code reads it."""
    data = data[: end_of_records(data)]
    alone = parsed(data, first=1)
    among = parsed(b"1,2,a,x\n" * copies + data + b"7,2,a,x\n", first=1)
    assert rows(among)[copies:] == rows(alone)
    assert (among.numbers[copies:] - copies).tolist() == alone.numbers.tolist()
    assert [reject.reason for reject in among.rejects][:-1] == [reject.reason for reject in alone.rejects]
    for reject in alone.rejects:
        assert reject.message.startswith(f"day1.csv, line {reject.number}: ")
        assert "\n" not in reject.message


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", 0),
        (b"a,b", 0),
        (b"a,b\nc", 4),
        (b'a,"b\nc', 0),
        (b'a,"b\nc"\nd', 8),
        (b'a,"b ""\nc"\n', 11),
        (b'1,2\na,"b\nc', 4),
    ],
)
def test_text_is_cut_where_records_end(data: bytes, whole: int) -> None:
    assert end_of_records(data) == whole


def test_a_header_is_the_first_record() -> None:
    data = '\ufeff,"a ""b""","c\nd",é\r\n1,2,3,4\r\n'.encode()
    names, header = read_header(data, Delimited(), "day1.csv")
    assert names == ("", 'a "b"', "c\nd", "é")
    assert data[len(header) :] == b"1,2,3,4\r\n"


@pytest.mark.parametrize("blank", [b"\n", b"\r\n \n", b"\xef\xbb\xbf\n\n"])
def test_blank_lines_before_a_header_are_counted_and_no_header(blank: bytes) -> None:
    names, header = read_header(blank + b"a,b\n1,2\n", Delimited(), "day1.csv")
    assert (names, header) == (("a", "b"), blank + b"a,b\n")
    with pytest.raises(InvalidRecords, match=f"^day1.csv, line {1 + blank.count(10)}: the header is not UTF-8"):
        read_header(blank + b"a,\xff\n1,2\n", Delimited(), "day1.csv")


def test_declared_names_stand_for_a_header() -> None:
    assert read_header(b"\xef\xbb\xbf1,2\n", Delimited(names=("a", "b")), "day1.csv") == (("a", "b"), b"\xef\xbb\xbf")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a\tb\tc\n", r"day1\.csv, line 1: one column in 'a\\tb\\tc'; is the separator '\\t'\?"),
        (b"a;b\n", r"is the separator ';'\?"),
        (b"\xff,b\n", "the header is not UTF-8"),
        (b'a,"b\n', "a quote that neither begins nor ends a cell"),
        (b"a,\0\n", "a NUL byte"),
        (b"1 1:1 2:1\n", r"line 1: one column in '1 1:1 2:1'; this looks like LibSVM \(label id:value\), use --format libsvm"),
        (b"\n\r\n\n", r"^day1\.csv: no rows in it"),
        (b"\xef\xbb\xbf", r"^day1\.csv: no rows in it"),
        (b"\n  ", r"^day1\.csv: no rows in it"),
    ],
)
def test_what_is_no_header_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidRecords, match=reason):
        read_header(data, Delimited(), "day1.csv")


def test_other_separators_are_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"separator '\|' is none of"):
        Delimited(separator="|")  # type: ignore[arg-type]


@pytest.mark.skipif(not CASE.is_dir(), reason="../shared is not there")
def test_shared_case_11() -> None:
    columns = Columns(label="label", numeric=("price",), categorical=("country", "city", "title"), ignored=("",))
    data = (CASE / "input.csv").read_bytes()
    names, header = read_header(data, Delimited(), "input.csv")
    found = parser(names, columns).parse(data[len(header) :], 2)
    keys = ("label", "price", "country", "city", "title")
    expected = [tuple(row[key] for key in keys) for row in json.loads((CASE / "expected.json").read_text())]
    assert rows(found) == expected
    assert found.numbers.tolist() == [2, 3, 4, 6]


@pytest.mark.skipif(not CASE.is_dir(), reason="../shared is not there")
@pytest.mark.parametrize(
    ("name", "reason"),
    [("dup_header.csv", "column 'a' stands twice"), ("no_label_col.csv", "no label column 'label'; columns found: clk,a,b")],
)
def test_shared_case_11_headers(name: str, reason: str) -> None:
    names, _ = read_header((CASE / name).read_bytes(), Delimited(), name)
    with pytest.raises(InvalidRecords, match=reason):
        parser(names, Columns(label="label", categorical=("a", "b")))


@pytest.mark.skipif(not SAMPLE.is_dir(), reason="../shared is not there")
def test_shared_data_04_and_its_twin_with_other_line_ends() -> None:
    """200 rows, 151 and 49 of a label, as SOURCE.txt says; the cells are those that the csv module reads."""
    columns = Columns(label="label", numeric=tuple(f"I{i}" for i in range(1, 14)), categorical=tuple(f"C{i}" for i in range(1, 27)))
    found = []
    for name in ("criteo_sample.txt", "criteo_sample.crlf.txt"):
        data = (SAMPLE / name).read_bytes()
        names, header = read_header(data, Delimited(), name)
        found.append(parser(names, columns).parse(data[len(header) :], 2))
    plain, crlf = found
    assert plain.batch.equals(crlf.batch)
    assert plain.numbers.tolist() == crlf.numbers.tolist() == list(range(2, 202))
    labels = plain.batch.column(0).to_pylist()
    assert (labels.count(0.0), labels.count(1.0)) == (151, 49)
    with (SAMPLE / "criteo_sample.txt").open(newline="") as file:
        expected = list(csv.DictReader(file))
    for place, name in enumerate(columns.fields, start=1):
        cells = [row[name] or None for row in expected]
        wanted = [float(cell) if cell else None for cell in cells] if name in columns.numeric else cells
        assert plain.batch.column(place).to_pylist() == wanted


def test_no_rows_are_no_rows() -> None:
    for text in ("", "\n", "\r\n\n"):
        found = parsed(text)
        assert (len(found.batch), found.numbers.dtype, found.rejects) == (0, np.dtype(np.int64), ())
        assert found.batch.schema.equals(parsed("1,2,a,x\n").batch.schema)
