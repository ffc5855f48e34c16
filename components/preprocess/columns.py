"""What the columns of a table mean: which one is the label, which are numbers, categories, lists of categories, or nothing.

Declared in a small JSON file, in its text, or in words on the command line; all say the same:

    {"label": "click", "numeric": ["price"], "categorical": ["country", "city"],
     "multi_valued": [{"name": "tags", "separator": "|", "values": 5}], "ignored": ["title"], "missing": ["NA"]}

    label=click; numeric=price; categorical=country,city; multi_valued=tags:|:5; ignored=title; missing=NA

Names with a comma, semicolon, colon or equals sign in them need the file. `ignored=*` ignores every column that has no role;
without it such a column is refused, so that a new column of a new day is noticed.

The fields of a row stand in the order numeric, categorical, multi-valued, whatever their order in the file. A multi-valued column
takes as many fields as it may have values (`values`); a row with fewer is filled up with value 0, which adds nothing to any model.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from components.documents import read_json, wrong_value
from components.errors import InvalidConfig, InvalidRecords

EVERY_OTHER = "*"
_LARGEST_LIST = 1000
_SHOWN_COLUMNS = 50


@dataclass(frozen=True, kw_only=True)
class MultiValued:
    """A column of several categories a row: text with a separator, or a list where the format has lists."""

    name: str
    separator: str = "|"
    values: int

    def __post_init__(self) -> None:
        if not self.separator:
            raise InvalidConfig(f"multi_valued column {self.name!r}: the separator is empty; give one character or more")
        if not 1 <= self.values <= _LARGEST_LIST:
            raise InvalidConfig(f"multi_valued column {self.name!r}: values {self.values} is outside 1..{_LARGEST_LIST}")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The role of every column of a table.

    `missing` are cells beside the empty one that mean "not known". `split` is the column that divides train from validation, which
    may be a category or, with times, a number as well; it is set from the settings of the split, because it is no part of what a
    model sees. `label` None means rows to score, of which nobody knows yet whether they are clicked.
    """

    label: str | None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    multi_valued: tuple[MultiValued, ...] = ()
    ignored: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    split: str | None = None

    def __post_init__(self) -> None:
        roles: dict[str, str] = {}
        label = () if self.label is None else (self.label,)
        listed = [("label", label), ("numeric", self.numeric), ("categorical", self.categorical)]
        lists = tuple(column.name for column in self.multi_valued)
        for role, names in [*listed, ("multi_valued", lists), ("ignored", self.ignored)]:
            for name in names:
                if name == EVERY_OTHER and role != "ignored":
                    raise InvalidConfig(f"columns: {role} '*': only ignored may mean every other column")
                if name in roles:
                    twice = f"{role} twice" if roles[name] == role else f"both {roles[name]} and {role}"
                    raise InvalidConfig(f"columns: {name!r} is {twice}; a column has one role")
                roles[name] = role
        if self.split is not None and roles.get(self.split, "ignored") not in ("numeric", "categorical", "ignored"):
            raise InvalidConfig(
                f"columns: split {self.split!r} is {roles[self.split]}; its text is needed, make it categorical or ignored"
            )
        if not self.fields:
            raise InvalidConfig("columns: no numeric, categorical or multi_valued column; a model needs at least one field")

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the columns that a model sees, in the order of a row."""
        return (*self.numeric, *self.categorical, *(column.name for column in self.multi_valued))

    @property
    def field_size(self) -> int:
        """How many ids a row holds."""
        return len(self.numeric) + len(self.categorical) + sum(column.values for column in self.multi_valued)

    @property
    def read(self) -> tuple[str, ...]:
        """Names of the columns that are read from a source: the label, the fields, and what the split is by."""
        names = self.fields if self.label is None else (self.label, *self.fields)
        return names if self.split is None or self.split in names else (*names, self.split)

    def unlabelled(self) -> "Columns":
        """The same fields of rows to score, whose files may have the label, and any other column, or not."""
        return replace(self, label=None, ignored=(EVERY_OTHER,), split=None)

    def check_header(self, found: Sequence[str], place: str) -> None:
        """Refuse a table with other columns than declared.

        Raises:
            InvalidRecords: a column twice, a declared one that is not there, or one without a role.
        """
        if twice := [name for name in dict.fromkeys(found) if found.count(name) > 1]:
            raise InvalidRecords(f"{place}: column {named(twice)} stands twice; rename or remove one")
        if absent := [name for name in (*self.read, *self.ignored) if name not in found and name != EVERY_OTHER]:
            others = [name for name in absent if name != self.label]
            wanted = [f"no label column {self.label!r}"] if self.label in absent else []
            wanted += [f"no column {named(others)}"] if others else []
            # As they stand in the file, unless that would break the line or the terminal, or hide a blank.
            plain = [name.isprintable() and name == name.strip() for name in found]
            names = [name[:80] if as_it_is else repr(name[:80]) for name, as_it_is in zip(found, plain, strict=True)]
            raise InvalidRecords(f"{place}: {' and '.join(wanted)}; columns found: {','.join(names[:_SHOWN_COLUMNS])}")
        known = {*self.read, *self.ignored}
        if EVERY_OTHER not in known and (unknown := [name for name in found if name not in known]):
            raise InvalidRecords(f"{place}: column {named(unknown)} has no role; declare it, or ignored '*' for every other column")


_DECLARED = tuple(field.name for field in fields(Columns) if field.name != "split")


def named(names: Sequence[str]) -> str:
    """Column names as a message prints them."""
    more = f" and {len(names) - _SHOWN_COLUMNS} more" if len(names) > _SHOWN_COLUMNS else ""
    return ", ".join(repr(name[:80]) for name in names[:_SHOWN_COLUMNS]) + more


def read_columns(argument: str) -> Columns:
    """Columns from the name of a JSON file, from its text, or from words (`label=click; numeric=price`).

    Raises:
        InvalidConfig: no such file, damaged, or not as the top of this module says.
    """
    if argument.lstrip().startswith("{"):
        try:
            return _columns(json.loads(argument), "columns")
        except (ValueError, RecursionError) as error:
            raise InvalidConfig(f"columns: cannot be read as JSON ({error})") from error
    if "=" in argument and not argument.endswith(".json"):
        return _columns(_from_words(argument), "columns")
    path = Path(argument)
    try:
        document = read_json(path)
    except FileNotFoundError:
        raise InvalidConfig(f"columns {argument!r}: no such file; or give words, such as 'label=click; numeric=price'") from None
    except (OSError, ValueError) as error:
        raise InvalidConfig(f"{path}: cannot be read as JSON ({error})") from error
    return _columns(document, str(path))


def columns_document(columns: Columns) -> dict[str, Any]:
    """Columns as `read_columns` reads them from a file; what is empty is left out."""
    lists = [{"name": each.name, "separator": each.separator, "values": each.values} for each in columns.multi_valued]
    found = {name: getattr(columns, name) for name in _DECLARED} | {"multi_valued": lists}
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in found.items() if value or isinstance(value, str)
    }


def _columns(document: Any, place: str) -> Columns:
    if not isinstance(document, dict):
        raise InvalidConfig(f"{place}: an object with label, numeric, categorical ... is expected")
    if "split" in document:
        raise InvalidConfig(f"{place}: split {document['split']!r}: give it as --split-column, with --split-by hash or time")
    _refuse_unknown(document, Columns, place)
    if document.get("label") is None:
        raise InvalidConfig(f"{place}: no label; name the column with the clicks, such as label=click")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in document.items()}
    lists = values.get("multi_valued", ())
    if not isinstance(lists, tuple):
        raise InvalidConfig(f"{place}: multi_valued {lists!r} is not a list")
    values["multi_valued"] = tuple(_multi_valued(each, place) for each in lists)
    hints = get_type_hints(Columns)
    if wrong := next((wrong for key, value in values.items() if (wrong := wrong_value(hints[key], value, key))), None):
        raise InvalidConfig(f"{place}: {wrong}")
    return Columns(**values)  # type: ignore[arg-type]


def _multi_valued(document: Any, place: str) -> MultiValued:
    if not isinstance(document, dict):
        raise InvalidConfig(f"{place}: multi_valued {document!r}: an object with name, separator and values is expected")
    _refuse_unknown(document, MultiValued, f"{place}: multi_valued")
    for key in ("name", "values"):
        if key not in document:
            raise InvalidConfig(
                f"{place}: multi_valued {json.dumps(document)}: no {key}; how many values a row may have is declared"
            )
    hints = get_type_hints(MultiValued)
    if wrong := next((wrong for key, value in document.items() if (wrong := wrong_value(hints[key], value, key))), None):
        raise InvalidConfig(f"{place}: multi_valued: {wrong}")
    return MultiValued(**document)


def _refuse_unknown(document: dict[str, Any], declared: type, place: str) -> None:
    known = _DECLARED if declared is Columns else [field.name for field in fields(declared)]
    if unknown := [key for key in document if key not in known]:
        raise InvalidConfig(f"{place}: unknown {', '.join(map(repr, unknown))}; known are {', '.join(known)}")


def _from_words(text: str) -> dict[str, Any]:
    """The document that `label=click; numeric=a,b; multi_valued=tags:|:5` means."""
    document: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(";"))):
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or "=" in value:
            raise InvalidConfig(f"columns: {word!r} is not role=names; names with ; or = in them need a JSON file")
        if key in document:
            raise InvalidConfig(f"columns: {key} stands twice; give all its columns at once, with commas between")
        names = [name.strip() for name in value.split(",")]
        if key == "multi_valued":
            document[key] = [_list_in_words(name) for name in names]
        else:
            document[key] = value if key in ("label", "split") else names
    return document


def _list_in_words(text: str) -> dict[str, Any]:
    name, _, rest = text.partition(":")
    separator, colon, values = rest.rpartition(":")
    if not (colon and separator and values.isascii() and values.isdigit()):
        raise InvalidConfig(f"columns: multi_valued {text!r} is not name:separator:values, such as tags:|:5")
    return {"name": name, "separator": separator, "values": int(values)}
