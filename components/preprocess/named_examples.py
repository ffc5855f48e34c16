"""tf.train.Example records with a feature a column, into the same raw rows as CSV and Parquet.

A feature that is absent, or has no value, is missing. Numbers are float or int64, categories bytes (UTF-8) or int64 (its digits); a
multi-valued column is a list of these. Features that are not declared are ignored, as those beside label, ids and values are.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from components.errors import InvalidRecords
from components.examples import parse_example
from components.preprocess.columns import Columns, named
from components.preprocess.kinds import shown
from components.preprocess.parsed import LABELS, Reason, Reject
from components.preprocess.raw_rows import LARGEST_FLOAT32, RawRows, raw_schema, rows_from_cells, whole_part

_WORDS = {"int64_list": "int64", "float_list": "float", "bytes_list": "bytes"}


class _Refused(Exception):
    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason, self.sentence = reason, sentence


def check_names(payloads: Sequence[bytes], columns: Columns, path: str) -> None:
    """Refuse declared columns that none of the first records of a file has: a name with a typo would be missing everywhere.

    Raises:
        InvalidRecords: the first record is no Example, or naming the columns and what was found.
    """
    found: set[str] = set()
    for record, payload in enumerate(payloads):
        try:
            found.update(parse_example(payload, f"{path}, record {record}").features.feature)
        except InvalidRecords:
            # A later one is refused, or skipped, where it is parsed.
            if record == 0:
                raise
    if absent := [name for name in columns.read if name not in found]:
        raise InvalidRecords(
            f"{path}: no feature {named(absent)} in the first {len(payloads)} records; features found: {named(sorted(found))}"
        )


def parse_named(payloads: Sequence[bytes], first: int, columns: Columns, path: str) -> RawRows:
    """Raw rows of records that follow one another; `first` is the number of the first one."""
    rows: list[list[Any]] = []
    numbers: list[int] = []
    rejects: list[Reject] = []
    for number, payload in enumerate(payloads, first):
        place = f"{path}, record {number}"
        try:
            rows.append(_row(parse_example(payload, place).features.feature, columns))
            numbers.append(number)
        except _Refused as error:
            rejects.append(Reject(number=number, reason=error.reason, message=f"{place}: {error.sentence}"))
        except InvalidRecords as error:
            rejects.append(Reject(number=number, reason="example", message=str(error)))
    cells = list(zip(*rows, strict=True)) or [()] * len(raw_schema(columns))
    return RawRows(batch=rows_from_cells(cells, columns), numbers=np.array(numbers, np.int64), rejects=tuple(rejects))


def _row(features: Any, columns: Columns) -> list[Any]:
    label = math.nan if columns.label is None else _label(features, columns.label)
    row: list[Any] = [label, *(_number(features, name) for name in columns.numeric)]
    row += [_token(features, name) for name in columns.categorical]
    row += [_tokens(features, column.name, column.values) or None for column in columns.multi_valued]
    if columns.split in columns.numeric:
        return [*row, whole_part(_number(features, columns.split))]
    return row if columns.split is None else [*row, _token(features, columns.split)]


def _label(features: Any, name: str) -> float:
    label = _number(features, name)
    if label is None:
        raise _Refused("missing label", f"feature {name}: the label is missing")
    if label not in LABELS:
        raise _Refused("label", f"feature {name}: label {label:g} is none of 0, 1, -1, +1")
    return LABELS[label]


def _values(features: Any, name: str, kinds: tuple[str, ...], most: int) -> Sequence[Any]:
    """The values of a feature; refuses other types and more values."""
    if name not in features or (kind := features[name].WhichOneof("kind")) is None:
        return ()
    values: Sequence[Any] = getattr(features[name], kind).value
    # An empty list is of no type that anybody meant.
    if not values:
        return ()
    if kind not in kinds:
        wanted = " or ".join(_WORDS[each] for each in kinds)
        raise _Refused("type", f"feature {name} is {_WORDS[kind]}, {wanted} wanted")
    if len(values) > most:
        raise _Refused("values", f"feature {name}: {len(values)} values, at most {most} {'are declared' if most > 1 else 'fits'}")
    return values


def _number(features: Any, name: str) -> float | None:
    values = _values(features, name, ("float_list", "int64_list"), 1)
    if not values:
        return None
    number = float(values[0])
    if not abs(number) <= LARGEST_FLOAT32:
        raise _Refused("number", f"feature {name}: {values[0]:g} is not finite as float32; leave it out where it is missing")
    return number


def _token(features: Any, name: str) -> str | None:
    return next(iter(_tokens(features, name, 1)), None)


def _tokens(features: Any, name: str, most: int) -> list[str]:
    values = _values(features, name, ("bytes_list", "int64_list"), most)
    try:
        return [value.decode() if isinstance(value, bytes) else str(value) for value in values if value != b""]
    except UnicodeDecodeError as error:
        raise _Refused("encoding", f"feature {name}: {shown(error.object)} is not UTF-8; convert it") from None
