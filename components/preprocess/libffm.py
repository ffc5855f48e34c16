"""LibFFM text: `label field:id:value field:id:value ...`, one row a line, the pairs in any order.

A row of a dataset has a place for each field, and a pair goes to the place of its field number. A field that a row lacks is filled
with the first id and value 0, which adds nothing to any model. A field may stand in a row up to `values_per_field` times (1 unless
declared) and then takes as many places; more are refused, because dropping some would go unnoticed.

Accepted beside that is what LibSVM accepts: tabs, repeated and trailing spaces, `#` comments, blank lines, labels 0/1 and -1/+1.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from components.errors import InvalidConfig, InvalidRecords
from components.preprocess.chunks import Chunk, byte_problem, text_chunks
from components.preprocess.kinds import looks_like, shown
from components.preprocess.libsvm import without_comments
from components.preprocess.lines import clean, split_lines
from components.preprocess.parsed import LABELS, Parsed, Reason, Reject
from components.preprocess.raw_rows import LARGEST_FLOAT32
from components.records import Batch, Schema

LARGEST_FIELD_SIZE = 100_000
_NUMBER = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
# What the fast way takes: whole numbers short enough to be exact as float64.
_ROW = re.compile(rb"\s*[+-]?[01](?:\.0*)?(?:\s+[0-9]{1,15}:[0-9]{1,15}:" + _NUMBER + rb")*\s*")
_LABEL = re.compile(_NUMBER)
_PAIR = re.compile(rb"([+-]?[0-9]+):([+-]?[0-9]+):(" + _NUMBER + rb"|[+-]?(?:nan|inf|infinity))", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FieldLayout:
    """How many fields there are, the number of the first one in the source (0 or 1), and how many places each takes."""

    fields: int
    field_base: int = 0
    values_per_field: int = 1

    def __post_init__(self) -> None:
        if self.field_base not in (0, 1):
            raise InvalidConfig(f"field_base {self.field_base}: must be 0 or 1")
        for name in ("fields", "values_per_field"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} {getattr(self, name)}: at least 1 is needed")
        if self.field_size > LARGEST_FIELD_SIZE:
            raise InvalidConfig(
                f"{self.fields} fields of {self.values_per_field} values: at most {LARGEST_FIELD_SIZE} places a row"
            )

    @property
    def field_size(self) -> int:
        """How many ids a row of the dataset holds."""
        return self.fields * self.values_per_field


@dataclass(frozen=True, kw_only=True)
class FieldRows:
    """Rows, the line of each, and the lines that were refused."""

    rows: Batch
    numbers: np.typing.NDArray[np.int64]
    rejects: tuple[Reject, ...] = ()


class _Refused(Exception):
    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason, self.sentence = reason, sentence


def parse_libffm(numbered: Sequence[tuple[int, bytes]], layout: FieldLayout, schema: Schema, path: str) -> FieldRows:
    """Rows of lines with their numbers, without comments and blank ones; `schema` says the id base and the table's size.

    Args:
        schema: its field_size is that of the layout.
    """
    if (rows := _many([text for _, text in numbered], layout, schema)) is not None:
        return FieldRows(rows=rows, numbers=np.array([number for number, _ in numbered], np.int64))
    good: list[int] = []
    rejects: list[Reject] = []
    labels, ids, values = [], [], []
    for number, text in numbered:
        try:
            label, row_ids, row_values = _row(text, layout, schema)
        except _Refused as error:
            rejects.append(Reject(number=number, reason=error.reason, message=f"{path}, line {number}: {error.sentence}"))
            continue
        good.append(number)
        labels.append(label)
        ids.append(row_ids)
        values.append(row_values)
    shape = (len(good), layout.field_size)
    batch = Batch(
        labels=np.array(labels, np.float32),
        ids=np.array(ids, np.int64).reshape(shape),
        values=np.array(values, np.float32).reshape(shape),
    )
    return FieldRows(rows=batch, numbers=np.array(good, np.int64), rejects=tuple(rejects))


def parse_chunk(chunk: Chunk, layout: FieldLayout, schema: Schema) -> Parsed:
    """Rows of a chunk of a file."""
    numbered = without_comments(split_lines(chunk))
    bad: list[Reject] = []
    if b"\r" in clean(chunk.data) or b"\0" in chunk.data:
        problems = [(number, byte_problem(text, alone=len(numbered) == 1)) for number, text in numbered]
        bad = [Reject(number, "bytes", f"{chunk.path}, line {number}: {problem}") for number, problem in problems if problem]
        numbered = [line for line, (_, problem) in zip(numbered, problems, strict=True) if not problem]
    found = parse_libffm(numbered, layout, schema, str(chunk.path))
    rejects = tuple(sorted([*bad, *found.rejects]))
    return Parsed(batch=found.rows, numbers=found.numbers, rejects=rejects)


def peek_fields(path: Path, field_base: int) -> int:
    """How many fields the first rows of a file speak of.

    Raises:
        InvalidRecords: none.
    """
    for chunk in text_chunks(path):
        if texts := [text for _, text in without_comments(split_lines(chunk))]:
            fields = largest_field(texts) + 1 - field_base
            if fields < 1:
                hint = looks_like(texts[0], but_not="LibFFM")
                raise InvalidRecords(f"{path}: no field:id:value in its first rows{hint}; give --field-size if they are empty")
            return fields
    raise InvalidRecords(f"{path}: no rows in it; remove the file or send it again")


def largest_field(texts: Sequence[bytes]) -> int:
    """The largest field number in some lines, -1 if there is none. What is no pair is passed over; parsing refuses it."""
    pairs = (_PAIR.fullmatch(word) for text in texts for word in text.split()[1:])
    return max((int(pair[1][:19]) for pair in pairs if pair), default=-1)


def _many(texts: list[bytes], layout: FieldLayout, schema: Schema) -> Batch | None:
    """All rows at once; None when anything is unusual."""
    if not all(map(_ROW.fullmatch, texts)):
        return None
    words = [text.split() for text in texts]
    pairs = np.array([len(line) - 1 for line in words], np.int64)
    # The pattern leaves nothing but numbers, so that what NumPy reads here is what float() reads.
    flat = np.fromstring(b" ".join(chain.from_iterable(words)).replace(b":", b" "), np.float64, sep=" ")
    starts = np.concatenate([[0], np.cumsum(1 + 3 * pairs)])[:-1]
    is_label = np.zeros(len(flat), bool)
    is_label[starts] = True
    labels, triples = flat[starts], flat[~is_label].reshape(-1, 3)
    fields, ids = (triples[:, place].astype(np.int64) for place in (0, 1))
    fields, ids = fields - layout.field_base, ids - schema.id_base
    row = np.repeat(np.arange(len(texts)), pairs)
    inside = (fields >= 0) & (fields < layout.fields) & (ids >= 0) & (ids < schema.feature_size)
    if not (inside & (np.abs(triples[:, 2]) <= LARGEST_FLOAT32)).all():
        return None
    # How often the field stood in the row before: places of equal (row, field), in the order of the line.
    of_field = row * layout.fields + fields
    order = np.argsort(of_field, kind="stable")
    ordered = of_field[order]
    repeats = np.empty(len(row), np.int64)
    repeats[order] = np.arange(len(row)) - np.searchsorted(ordered, ordered, side="left")
    if (repeats >= layout.values_per_field).any():
        return None
    batch = Batch(
        labels=(labels > 0).astype(np.float32),
        ids=np.zeros((len(texts), layout.field_size), np.int64),
        values=np.zeros((len(texts), layout.field_size), np.float32),
    )
    slots = fields * layout.values_per_field + repeats
    batch.ids[row, slots] = ids
    batch.values[row, slots] = triples[:, 2]
    return batch


def _row(text: bytes, layout: FieldLayout, schema: Schema) -> tuple[float, list[int], list[float]]:
    """One row, word by word: the slow way, which knows what to say about a wrong one."""
    label_word, *words = text.split()
    label = LABELS.get(float(label_word)) if _LABEL.fullmatch(label_word) else None
    if label is None:
        raise _Refused("label", f"label {shown(label_word)} is none of 0, 1, -1, +1{_other_kind(text)}")
    ids, values = [0] * layout.field_size, [0.0] * layout.field_size
    stood = [0] * layout.fields
    for word in words:
        field, row_id, value = _pair(word, text, layout, schema)
        if stood[field] == layout.values_per_field:
            often = f"stands more than {layout.values_per_field} times" if layout.values_per_field > 1 else "stands twice"
            number = field + layout.field_base
            raise _Refused("repeated field", f"field {number} {often} in the row; declare how many values a field may have")
        place = field * layout.values_per_field + stood[field]
        ids[place], values[place] = row_id, value
        stood[field] += 1
    return label, ids, values


def _pair(word: bytes, text: bytes, layout: FieldLayout, schema: Schema) -> tuple[int, int, float]:
    """Field and id (both from 0) and value of `field:id:value`; every failing reason is named."""
    if not (found := _PAIR.fullmatch(word)):
        kind = _other_kind(text)
        raise _Refused("pair", f"{shown(word)} is not field:id:value with a whole field and id and a number{kind}")
    # More digits than int() converts are outside any table, too.
    field, row_id = (int(part) if len(part) < 30 else -1 for part in found.groups()[:2])
    if not 0 <= field - layout.field_base < layout.fields:
        last = layout.fields - 1 + layout.field_base
        hint = "raise --field-size or check the field base"
        raise _Refused("pair", f"field {found[1][:40].decode()} is outside {layout.field_base}..{last}; {hint}")
    if not 0 <= row_id - schema.id_base < schema.feature_size:
        last = schema.feature_size - 1 + schema.id_base
        hint = "raise --feature-size or check --id-base"
        raise _Refused("id", f"id {found[2][:40].decode()} is outside {schema.id_base}..{last}; {hint}")
    value = float(found[3])
    if not abs(value) <= LARGEST_FLOAT32:
        raise _Refused("value", f"value in {shown(word)} is not finite as float32")
    return field - layout.field_base, row_id - schema.id_base, value


def _other_kind(text: bytes) -> str:
    return looks_like(text, but_not="LibFFM")
