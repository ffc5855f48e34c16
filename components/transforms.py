"""transform.json beside a dataset or a model, as those see it who do not apply it (preprocess/transform_file.py does).

Its `encodes` is a digest of all that decides which ids and values a row gets, and of nothing else: two transforms that were fitted
on other days, and hash alike, have the same. One that grew names those that it grew from: its ids are theirs, and new ones.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.documents import read_json
from components.errors import InvalidRecords

TRANSFORM = "transform.json"


def encoding_of(folder: Path) -> str | None:
    """What the transform of a dataset or model folder encodes; None where there is none, as where sources hold ids.

    Raises:
        InvalidRecords: damaged, or of an earlier release.
    """
    path = folder / TRANSFORM
    if not path.is_file():
        return None
    try:
        encodes = read_json(path)["encodes"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRecords(f"{path}: does not say what it encodes ({error!r}); preprocess again") from error
    if not isinstance(encodes, str):
        raise InvalidRecords(f"{path}: encodes {encodes!r} is no digest; preprocess again")
    return encodes


@dataclass(frozen=True, kw_only=True)
class OlderVersion:
    """What a transform was before it grew: what it encoded, and how many ids it had."""

    encodes: str
    feature_size: int


@dataclass(frozen=True, kw_only=True)
class OlderTable:
    """Rows of a grown transform as an older version has them: ids from `feature_size` on were those of `rare` tokens, by field."""

    feature_size: int
    rare_F: tuple[int, ...]

    def ids(self, ids_BF: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids that the older one gives the same rows."""
        return np.where(ids_BF < self.feature_size, ids_BF, np.array(self.rare_F, np.int64))


def older_table(folder: Path, encodes: str | None) -> OlderTable | None:
    """The version of a folder's transform that encodes so; None where it grew from no such one.

    Raises:
        InvalidRecords: a damaged transform.json.
    """
    path = folder / TRANSFORM
    if encodes is None or not path.is_file():
        return None
    try:
        transform = read_json(path)["transform"]
        sizes = {each["encodes"]: each["feature_size"] for each in transform.get("older", [])}
        if encodes not in sizes:
            return None
        # No number has a new id.
        rare = [0] * len(transform["numbers"])
        rare += [column["rare"] for column in transform["categories"] for _ in range(column["width"])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRecords(f"{path}: does not say what it grew from ({error!r}); preprocess again") from error
    return OlderTable(feature_size=sizes[encodes], rare_F=tuple(rare))


@dataclass(frozen=True, kw_only=True)
class RowField:
    """A place in the rows of a dataset: the column it is of, as transform.json has it, or None where sources hold ids."""

    name: str
    column: dict[str, Any] | None = None

    def value(self, number: int) -> str:
        """What an id in this field stands for, as a person reads it."""
        column = self.column
        if column is None:
            return f"id {number}"
        if number == column["missing"]:
            return "missing"
        if "edges" in column:
            return _number(column, number)
        if number == column["rare"]:
            return "rare or unseen"
        if number in column.get("grown_ids", ()):
            return str(column["grown"][column["grown_ids"].index(number)])
        return column["vocabulary"][number - column["first"]] if column["vocabulary"] is not None else f"id {number}"


def _number(column: dict[str, Any], number: int) -> str:
    edges, place = column["edges"], number - column["first"]
    if column["encoding"] != "bucket":
        return "a number"
    low = f"from {edges[place - 1]:g}" if place else ""
    high = f"below {edges[place]:g}" if place < len(edges) else ""
    return f"{low} {high}".strip() or "a number"


def row_fields(folder: Path, field_size: int) -> tuple[RowField, ...]:
    """The fields of a dataset's rows, in their order; those of a column with several are numbered.

    Raises:
        InvalidRecords: a damaged transform.json, or one of rows of another width.
    """
    path = folder / TRANSFORM
    if not path.is_file():
        return tuple(RowField(name=f"field {place}") for place in range(field_size))
    try:
        transform = read_json(path)["transform"]
        columns = [(column, column.get("width", 1)) for column in (*transform["numbers"], *transform["categories"])]
        found = tuple(
            RowField(name=column["name"] if width == 1 else f"{column['name']} {place + 1}", column=column)
            for column, width in columns
            for place in range(width)
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRecords(f"{path}: does not say what its fields are ({error!r}); preprocess again") from error
    if len(found) != field_size:
        raise InvalidRecords(f"{path}: is of {len(found)} fields, the rows have {field_size}; preprocess again")
    return found
