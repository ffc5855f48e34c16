"""Documents that somebody edited by hand: every wrong value is named, nothing else is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from components.documents import read_json, settings_of, wrong_value
from components.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class Part:
    rows: int
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Whole:
    share: float = 0.5
    name: str = "n"
    auc: float | None = None
    parts: tuple[Part, ...] = ()
    pair: tuple[int, float] = (1, 2.0)
    metrics: Mapping[str, float]
    config: Mapping[str, Any]


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({}, None),
        ({"share": 1, "auc": 0.7, "parts": (Part(rows=1), Part(rows=2, kind="b"))}, None),
        ({"config": {"a": [1, None]}, "metrics": {"loss": 1}}, None),
        ({"share": "x"}, "share 'x' is not float"),
        ({"share": True}, "share True is not float"),
        ({"share": None}, "share None is not float"),
        ({"name": ["x"]}, "name ['x'] is not str"),
        ({"auc": "0.7"}, "auc '0.7' is not float | None"),
        ({"parts": (Part(rows=1), Part(rows=True))}, "rows True is not int"),
        ({"parts": (Part(rows=1, kind="c"),)}, "kind 'c' is not one of a, b"),  # type: ignore[arg-type]
        ({"parts": ("x",)}, "an entry of parts is not an object"),
        ({"parts": None}, "parts None is not a list of that kind"),
        ({"pair": (1,)}, "pair (1,) is not a list of that kind"),
        ({"pair": (1, None)}, "an entry of pair None is not float"),
        ({"metrics": {"loss": "x"}}, "metrics.loss 'x' is not float"),
        ({"config": []}, "config [] is not an object"),
    ],
)
def test_a_value_of_another_type_is_named(changes: dict[str, Any], wrong: str | None) -> None:
    said = wrong_value(Whole, Whole(**{"metrics": {}, "config": {}, **changes}), "the document")
    assert said is None if wrong is None else said is not None and said.startswith(wrong)


@dataclass(frozen=True, kw_only=True)
class Settings:
    name: str
    part: Part = Part(rows=1)
    widths: tuple[int, ...] = (3,)

    def __post_init__(self) -> None:
        if max(self.widths) > 9:
            raise InvalidConfig("widths: at most 9")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"name": "n"}, Settings(name="n")),
        ({"name": "n", "part": {"rows": 2, "kind": "c"}}, "the file: part: kind 'c' is not one of a, b"),
        ({"name": "n", "widths": [4, 5], "part": {"rows": 2}}, Settings(name="n", widths=(4, 5), part=Part(rows=2))),
        ([], "the file: an object is expected, not []"),
        ({}, "the file: no name"),
        ({"name": 3}, "the file: name 3 is not str"),
        ({"name": "n", "width": [1]}, "the file: 'width' is unknown; did you mean widths?"),
        ({"name": "n", "zzz": 1}, "the file: 'zzz' is unknown; known: name, part, widths"),
        ({"name": "n", "widths": [1.5]}, "the file: an entry of widths 1.5 is not int"),
        ({"name": "n", "widths": [10]}, "widths: at most 9"),
        ({"name": "n", "part": {"row": 2}}, "the file: part: 'row' is unknown; did you mean rows?"),
        ({"name": "n", "part": {}}, "the file: part: no rows"),
        ({"name": "n", "part": 3}, "the file: part is not an object"),
    ],
    ids=str,
)
def test_settings_of_a_document_are_made_or_refused_by_name(document: Any, expected: Settings | str) -> None:
    if isinstance(expected, Settings):
        assert settings_of(Settings, document, "the file") == expected
        return
    with pytest.raises(InvalidConfig) as caught:
        settings_of(Settings, document, "the file")
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"auc": NaN}', "auc nan is not a finite number"),
        ('{"auc": -Infinity}', "auc -inf is not a finite number"),
        ('{"a": {"auc": 1e999}}', "auc inf is not a finite number"),
        ('{"losses": [[1, 0.5], [2, NaN]]}', "losses .* is not a finite number"),
        ("[" * 100_000, "nested too deep"),
        ('{"auc": 0.7', "delimiter"),
        ("", "Expecting value"),
    ],
    ids=["nan", "infinity", "too-large", "nan-in-a-list", "too-deep", "truncated", "empty"],
)
def test_what_is_no_strict_json_is_a_value_error(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "document.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        read_json(path)
