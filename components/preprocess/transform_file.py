"""transform.json: a fitted transform on disk, beside the dataset and the model that were made with it.

    {"format": "ctrflow transform", "format_version": 2, "sha256": ..., "encodes": ...,
     "transform": {"columns": ..., "numbers": [...], ...}}

`transform` has the fields of transform.py by name; `sha256` is that of its canonical JSON (sorted keys, no blanks), so that a
changed token or number is noticed; `encodes` is that of what decides which ids and values a row gets, by which a model of another
day is known to be comparable. Bytes of a token that are not UTF-8 stand as lone surrogates (Python's surrogateescape).
"""

import hashlib
import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from components.documents import read_json, wrong_value
from components.errors import InvalidRecords, WorkflowError
from components.preprocess.columns import Columns, MultiValued
from components.preprocess.transform import CategoryField, NumberField, Transform
from components.storage import write_text_atomic
from components.transforms import TRANSFORM, OlderVersion

FORMAT, FORMAT_VERSION = "ctrflow transform", 2
# Of a transform, its columns and its fields: what is told of training rows or asked of files, and makes no id or value.
TOLD = ("rows", "label", "ignored", "split", "distinct", "collision_rate", "older")
# Which only those have that grew, so that the others' digests are what they were before there was growth.
GROWN = ("grown", "grown_ids", "older")
Part = TypeVar("Part")


def _canonical(document: object) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _document(transform: Transform) -> dict[str, Any]:
    """The transform as JSON has it. Not by `asdict`, which copies each token of a vocabulary."""
    parts = {name: [_fields_of(part) for part in getattr(transform, name)] for name in ("numbers", "categories")}
    parts |= {"older": [asdict(each) for each in transform.older]} if transform.older else {}
    return {**_fields_of(transform), **parts, "columns": asdict(transform.columns)}


def _fields_of(part: Transform | NumberField | CategoryField) -> dict[str, Any]:
    found = {field.name: getattr(part, field.name) for field in fields(part)}
    return {name: value for name, value in found.items() if value or name not in GROWN}


def transform_digest(transform: Transform) -> str:
    """SHA-256 of the canonical form: two datasets may be trained together only if theirs are equal."""
    return hashlib.sha256(_canonical(_document(transform)).encode()).hexdigest()


def encoding_digest(transform: Transform) -> str:
    """SHA-256 of what decides which ids and values a row gets: a model can score rows if its transform has the same."""

    def deciding(part: Any) -> Any:
        if isinstance(part, list):
            return [deciding(each) for each in part]
        return {key: deciding(value) for key, value in part.items() if key not in TOLD} if isinstance(part, dict) else part

    return hashlib.sha256(_canonical(deciding(_document(transform))).encode()).hexdigest()


def write_transform(path: Path, transform: Transform) -> None:
    """Write the file, whole or not at all."""
    content = _canonical(_document(transform))
    digest = hashlib.sha256(content.encode()).hexdigest()
    opening = f'{{"format":"{FORMAT}","format_version":{FORMAT_VERSION},"sha256":"{digest}",'
    opening += f'"encodes":"{encoding_digest(transform)}","transform":'
    write_text_atomic(path, f"{opening}{content}}}\n")


def read_transform(path: Path) -> Transform:
    """The transform of a file.

    Raises:
        InvalidRecords: none there, of another version, or changed since it was written.
    """
    try:
        document = read_json(path)
    except FileNotFoundError:
        raise InvalidRecords(f"{path}: no such file; preprocess the training data to fit a transform") from None
    except (OSError, ValueError) as error:
        raise InvalidRecords(f"{path}: cannot be read as JSON ({error}); copy it again from its dataset") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InvalidRecords(f"{path}: not a {FORMAT}; give the {TRANSFORM} of a dataset or model")
    if document.get("format_version") != FORMAT_VERSION:
        found = document.get("format_version")
        raise InvalidRecords(f"{path}: format_version {FORMAT_VERSION} is expected, not {found!r}; fit it again with this release")
    content = document.get("transform")
    if hashlib.sha256(_canonical(content).encode()).hexdigest() != document.get("sha256"):
        raise InvalidRecords(f"{path}: damaged or edited (its sha256 differs); copy it again from its dataset")
    try:
        transform = _transform(content)
    except (KeyError, TypeError, AttributeError, WorkflowError) as error:
        raise InvalidRecords(f"{path}: not a whole transform ({error}); copy it again from its dataset") from error
    if wrong := wrong_value(Transform, transform, "transform"):
        raise InvalidRecords(f"{path}: {wrong}; copy it again from its dataset")
    if document.get("encodes") != encoding_digest(transform):
        raise InvalidRecords(f"{path}: encodes something else than it says; copy it again from its dataset")
    return transform


def _part(kind: type[Part], document: dict[str, Any]) -> Part:
    """A dataclass from its object, lists as tuples; all keys must be there and no others."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if names != document.keys():
        raise TypeError(f"missing or unknown keys: {', '.join(sorted(names ^ document.keys()))}")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in document.items()})


def _transform(document: Any) -> Transform:
    columns = document["columns"]
    lists = [_part(MultiValued, each) for each in columns["multi_valued"]]
    return _part(
        Transform,
        {
            **document,
            "older": [_part(OlderVersion, each) for each in document.get("older", [])],
            "columns": _part(Columns, {**columns, "multi_valued": lists}),
            "numbers": [_part(NumberField, each) for each in document["numbers"]],
            "categories": [_part(CategoryField, {"grown": [], "grown_ids": [], **each}) for each in document["categories"]],
        },
    )
