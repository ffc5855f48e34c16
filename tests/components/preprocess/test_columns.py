"""Roles of columns: both ways to declare them mean the same, and what is wrong is said before any row is read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.columns import Columns, MultiValued, columns_document, read_columns

EVERYTHING = Columns(
    label="click",
    numeric=("price",),
    categorical=("country", "city"),
    multi_valued=(MultiValued(name="tags", separator="|", values=5),),
    ignored=("title",),
    missing=("NA",),
)


def test_words_and_a_file_mean_the_same(tmp_path: Path) -> None:
    words = "label=click; numeric=price; categorical=country, city; multi_valued=tags:|:5; ignored=title; missing=NA"
    document = {
        "label": "click",
        "numeric": ["price"],
        "categorical": ["country", "city"],
        "multi_valued": [{"name": "tags", "separator": "|", "values": 5}],
        "ignored": ["title"],
        "missing": ["NA"],
    }
    (tmp_path / "columns.json").write_text(json.dumps(document))
    assert read_columns(words) == read_columns(str(tmp_path / "columns.json")) == EVERYTHING
    assert columns_document(EVERYTHING) == document


def test_fields_stand_in_the_order_of_roles_and_a_list_takes_as_many_as_it_may_have() -> None:
    assert EVERYTHING.fields == ("price", "country", "city", "tags")
    assert EVERYTHING.field_size == 1 + 2 + 5
    assert EVERYTHING.read == ("click", "price", "country", "city", "tags")
    assert replace(EVERYTHING, split="hour").read == ("click", "price", "country", "city", "tags", "hour")
    assert replace(EVERYTHING, split="city").read == EVERYTHING.read


def test_what_is_left_out_of_a_file_has_its_default(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_text('{"label": "y", "numeric": [""]}')
    columns = read_columns(str(tmp_path / "c.json"))
    assert columns == Columns(label="y", numeric=("",))
    assert columns_document(columns) == {"label": "y", "numeric": [""]}


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"label": "y", "numeric": ("y",)}, "'y' is both label and numeric; a column has one role"),
        ({"label": "y", "numeric": ("a", "a")}, "'a' is numeric twice"),
        ({"label": "y", "numeric": ("a",), "ignored": ("a",)}, "'a' is both numeric and ignored"),
        (
            {"label": "y", "categorical": ("t",), "multi_valued": (MultiValued(name="t", values=2),)},
            "both categorical and multi_valued",
        ),
        ({"label": "y"}, "no numeric, categorical or multi_valued column"),
        ({"label": "y", "categorical": ("*",)}, "only ignored may mean every other column"),
        ({"label": "t", "numeric": ("a",), "split": "t"}, "split 't' is label; its text is needed"),
    ],
)
def test_a_column_has_one_role(declared: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        Columns(**declared)
    assert reason in str(caught.value)


@pytest.mark.parametrize(("separator", "values"), [("", 3), ("|", 0), ("|", 1001)])
def test_a_list_has_a_separator_and_a_sane_length(separator: str, values: int) -> None:
    with pytest.raises(InvalidConfig, match="multi_valued column 'tags'"):
        MultiValued(name="tags", separator=separator, values=values)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (["clk", "a", "b"], "no label column 'label'; columns found: clk,a,b"),
        (["\x1f\x1b[2J", "a\nb"], r"no label column 'label' and no column 'a', 'b'; columns found: '\x1f\x1b[2J','a\nb'"),
        (["label", " a", "b "], "no column 'a', 'b'; columns found: label,' a','b '"),
        (["label", "a", "a", "b"], "column 'a' stands twice; rename or remove one"),
        (["label", "a"], "no column 'b'; columns found: label,a"),
        (["label", "a", "b", "c"], "column 'c' has no role; declare it, or ignored '*' for every other column"),
        (["label", "a", "b", ""], "column '' has no role"),
    ],
)
def test_a_table_with_other_columns_is_refused(found: list[str], reason: str) -> None:
    with pytest.raises(InvalidRecords) as caught:
        Columns(label="label", numeric=("a",), categorical=("b",)).check_header(found, "day1.csv")
    assert str(caught.value).startswith("day1.csv: " + reason)


def test_ignored_columns_may_be_there() -> None:
    Columns(label="y", numeric=("a",), ignored=("t",), split="t").check_header(["t", "a", "y"], "day1.csv")
    Columns(label="y", numeric=("a",), ignored=("*",)).check_header(["", "y", "x", "a"], "day1.csv")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("label", "columns 'label': no such file"),
        ("label=y; numeric=a; numeric=b", "numeric stands twice"),
        ("label=y; number=a", "unknown 'number'; known are label, numeric, categorical, multi_valued, ignored, missing"),
        ("label=y; numeric", "'numeric' is not role=names"),
        ("label=y; numeric=a=b", "'numeric=a=b' is not role=names"),
        ("numeric=a", "no label"),
        ("label=y; numeric=a; split=hour", "split 'hour': give it as --split-column, with --split-by hash or time"),
        ("label=y; multi_valued=tags", "'tags' is not name:separator:values, such as tags:|:5"),
        ("label=y; multi_valued=tags:|:many", "'tags:|:many' is not name:separator:values"),
    ],
)
def test_words_that_mean_nothing_are_refused(words: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_columns(words)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "an object with label, numeric, categorical"),
        ('{"label": 1, "numeric": ["a"]}', "label 1 is not str"),
        ('{"label": "y", "numeric": ["a"], "split": "hour"}', "split 'hour': give it as --split-column"),
        ('{"label": "y", "numeric": [1]}', "an entry of numeric 1 is not str"),
        ('{"label": "y", "numeric": "a"}', "numeric 'a' is not a list"),
        ('{"label": "y", "multi_valued": ["t"]}', "multi_valued 't': an object with name, separator and values"),
        ('{"label": "y", "multi_valued": [{"name": "t"}]}', "no values"),
        ('{"label": "y", "multi_valued": [{"name": "t", "values": "3"}]}', "values '3' is not int"),
        ('{"label": "y", "multi_valued": [{"name": "t", "values": 3, "sep": ","}]}', "unknown 'sep'"),
        ('{"label": "y", "multi_valued": 3}', "multi_valued 3"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        read_columns(str(tmp_path / "c.json"))
    assert str(caught.value).startswith(str(tmp_path / "c.json"))
    assert reason in str(caught.value)
