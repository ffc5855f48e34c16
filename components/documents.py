"""JSON documents that people may have edited: strict parsing, and a check of what was read against the declared types."""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from components.errors import InvalidConfig, hint_for

Settings = TypeVar("Settings")


def read_json(path: Path) -> Any:
    """The document of a file.

    Raises:
        ValueError: not JSON in UTF-8, a number that is not finite (RFC 8259 has none), or nested beyond all sense.
    """
    return parse_json(path.read_text(encoding="utf-8"))


def parse_json(text: str | bytes) -> Any:
    """The document of a text.

    Raises: as read_json.
    """
    try:
        return json.loads(text, object_pairs_hook=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _finite(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    for key, value in pairs:
        if not _is_finite(value):
            raise ValueError(f"{key} {value!r} is not a finite number")
    return dict(pairs)


def _is_finite(value: Any) -> bool:
    return all(map(_is_finite, value)) if isinstance(value, list) else not isinstance(value, float) or math.isfinite(value)


def wrong_value(declared: Any, value: Any, place: str) -> str | None:
    """What is wrong with a value that should be of the declared type, down to the parts of dataclasses; None when nothing is.

    An int passes for a float, a bool for neither. `place` is what the sentence calls the value.
    """
    if isinstance(declared, type) and is_dataclass(declared):
        if not isinstance(value, declared):
            return f"{place} is not an object"
        hints = get_type_hints(declared)
        parts = [(hints[field.name], getattr(value, field.name), field.name) for field in fields(declared)]
        return next((wrong for part in parts if (wrong := wrong_value(*part))), None)
    origin, arguments = get_origin(declared), get_args(declared)
    if origin is UnionType:
        fits = any(wrong_value(each, value, place) is None for each in arguments)
    elif origin is Literal:
        if not any(type(value) is type(each) and value == each for each in arguments):
            return f"{place} {value!r} is not one of {', '.join(map(str, arguments))}"
        fits = True
    elif origin is tuple:
        if not isinstance(value, tuple) or (arguments[-1] is not Ellipsis and len(value) != len(arguments)):
            return f"{place} {value!r} is not a list of that kind"
        kinds = (arguments[0],) * len(value) if arguments[-1] is Ellipsis else arguments
        items = zip(kinds, value, strict=True)
        return next((wrong for kind, item in items if (wrong := wrong_value(kind, item, f"an entry of {place}"))), None)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            return f"{place} {value!r} is not an object"
        return next((wrong for key, item in value.items() if (wrong := wrong_value(arguments[1], item, f"{place}.{key}"))), None)
    elif declared in (int, float):
        fits = isinstance(value, (int, float) if declared is float else int) and not isinstance(value, bool)
    else:
        fits = declared is Any or isinstance(value, NoneType if declared is None else declared)
    return None if fits else f"{place} {value!r} is not {getattr(declared, '__name__', declared)}"


def settings_of_text(kind: type[Settings], text: str, name: str, example: str) -> Settings:
    """As settings_of, from a parameter that is a JSON text; an empty text leaves everything out.

    Args:
        name: of the parameter. example: of such a text, for who wrote something else.
    Raises:
        InvalidConfig: not JSON, or as settings_of.
    """
    try:
        document = parse_json(text or "{}")
    except ValueError as error:
        raise InvalidConfig(f"{name} {text[:80]!r}: not JSON ({error}); an object is expected, such as {example}") from error
    return settings_of(kind, document, name)


def settings_of(kind: type[Settings], document: Any, place: str) -> Settings:
    """A dataclass of settings from the object of a JSON document; what is left out has its default, lists become tuples.

    Args:
        place: what a message calls the document.
    Raises:
        InvalidConfig: no object, a key that is unknown (with the nearest known one), or a value of another type.
    """
    if not isinstance(document, dict):
        raise InvalidConfig(f"{place}: an object is expected, not {document!r}")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key not in hints:
            raise InvalidConfig(f"{place}: {key!r} is unknown; {hint_for(key, hints)}")
        part = hints[key]
        if isinstance(value, dict) and isinstance(part, type) and is_dataclass(part):
            values[key] = settings_of(part, value, f"{place}: {key}")
        else:
            values[key] = tuple(value) if isinstance(value, list) else value
        # Before the settings are made, whose own checks take the types for granted.
        if wrong := wrong_value(part, values[key], key):
            raise InvalidConfig(f"{place}: {wrong}")
    if missing := [each.name for each in fields(kind) if each.name not in values and _is_required(each)]:  # type: ignore[arg-type]
        raise InvalidConfig(f"{place}: no {', '.join(missing)}")
    return kind(**values)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


# What a field's annotation admits in JSON; literals, tuples and rungs are checked where they are built.
_ADMITTED: dict[Any, tuple[type, ...]] = {
    int: (int,),
    float: (int, float),
    float | None: (int, float, type(None)),
    str: (str,),
    bool: (bool,),
}
_HOLDS: dict[type, str] = {int: "whole numbers", float: "numbers", str: "texts"}


def checked_arguments(kind: type, document: Any, place: str) -> dict[str, Any]:
    """The object as constructor arguments; refuses missing and unknown keys, and values of another type, by name."""
    if not isinstance(document, dict):
        raise InvalidConfig(f"{place}: an object is expected, not {type(document).__name__}")
    wrong = {item.name for item in fields(kind)} ^ document.keys()
    if wrong:
        raise InvalidConfig(f"{place}: missing or unknown keys: {', '.join(sorted(wrong))}; run the step that wrote it again")
    for item in fields(kind):
        value, admitted = document[item.name], _ADMITTED.get(item.type, (object,))
        # bool is an int to Python, not to a reader of a plan.
        if not isinstance(value, admitted) or (isinstance(value, bool) and bool not in admitted and object not in admitted):
            raise InvalidConfig(f"{place}: {item.name} {value!r} is of the wrong type; run the step that wrote it again")
        if item.type in (tuple[int, ...], tuple[float, ...], tuple[str, ...]):
            document = {**document, item.name: _listed_values(value, get_args(item.type)[0], f"{place}: {item.name}")}
    return dict(document)


def _listed_values(value: Any, kind: type, name: str) -> tuple[Any, ...]:
    """A list of JSON as the tuple that a field holds."""
    if not isinstance(value, list):
        raise InvalidConfig(f"{name} must be a list")
    if not all(type(one) in _ADMITTED[kind] for one in value):
        raise InvalidConfig(f"{name} {value!r} must hold {_HOLDS[kind]}")
    return tuple(value)
