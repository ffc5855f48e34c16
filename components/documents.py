"""JSON documents that people may have edited: strict parsing, and a check of what was read against the declared types."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints


def read_json(path: Path) -> Any:
    """The document of a file.

    Raises:
        ValueError: not JSON in UTF-8, a number that is not finite (RFC 8259 has none), or nested beyond all sense.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_finite)
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
        fits = any(type(value) is type(each) and value == each for each in arguments)
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
