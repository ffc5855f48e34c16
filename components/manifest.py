"""manifest.json: what a dataset holds, and what its readers check it against.

    <dataset>/manifest.json
              train/part-00000.tfrecord ...
              validation/part-00000.tfrecord ...

A folder without a valid manifest is not a dataset. It is written last.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from components.documents import read_json, wrong_value
from components.errors import InvalidRecords, WorkflowError
from components.records import ENCODINGS, Batch, Encoding, Schema, Shard, read_shard
from components.storage import write_json_atomic

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
SplitName = Literal["train", "validation"]
SplitBy = Literal["row", "hash", "time"]
SPLITS: tuple[SplitName, ...] = ("train", "validation")


@dataclass(frozen=True, kw_only=True)
class Split:
    """One of the two parts of a dataset."""

    examples: int
    positives: int
    shards: tuple[Shard, ...]


@dataclass(frozen=True, kw_only=True)
class Source:
    """One input file as it was read.

    `rejected` counts rows that were skipped, by reason, `left_out` negative rows that sampling left out; `rows` counts neither.
    """

    path: str
    bytes: int
    sha256: str
    rows: int
    rejected: dict[str, int] = field(default_factory=dict)
    left_out: int = 0


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Which rows validate: about `fraction` of them each by itself, or of the texts of `column`; or those from a time on.

    `boundary` is the first time that validates, ISO 8601 in UTC. What does not apply is None.
    """

    by: SplitBy = "row"
    fraction: float | None = None
    column: str | None = None
    boundary: str | None = None


@dataclass(frozen=True, kw_only=True)
class ColumnStatistics:
    """What a transform made of a column: cells that were missing, and what is known of tokens.

    `unseen` tokens share an id because its vocabulary does not hold them. It was made for `distinct` tokens, of which the share
    `collision_rate` has an id that another one has too. What does not apply is None: hashing has no vocabulary, numbers no tokens.
    """

    name: str
    missing: int
    unseen: int | None = None
    distinct: int | None = None
    collision_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """What a person looks at first, of the rows that the dataset holds.

    `missing` counts empty cells; `validation_rows_in_train` counts exact repeats; `columns` are those of a table.
    """

    smallest_id: int
    largest_id: int
    smallest_value: float
    largest_value: float
    missing: int
    click_rate: float
    distinct_ids_by_field: tuple[int, ...]
    validation_rows_in_train: int
    columns: tuple[ColumnStatistics, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole document. `versions` names what wrote it; `warnings` are sentences for the reader of a report.

    `negative_sampling_rate` is the share of the negative training rows that was kept; validation rows are all there.
    """

    format_version: int = FORMAT_VERSION
    encoding: Encoding
    schema: Schema
    train: Split
    validation: Split
    statistics: Statistics
    sources: tuple[Source, ...]
    held_out: HeldOut = field(default_factory=HeldOut)
    negative_sampling_rate: float = 1.0
    warnings: tuple[str, ...] = ()
    versions: dict[str, str]

    def split(self, name: SplitName) -> Split:
        return self.train if name == "train" else self.validation


def manifest_digest(manifest: Manifest) -> str:
    """SHA-256 of the document in canonical form: the identity of a dataset, whatever folder it lies in."""
    return hashlib.sha256(json.dumps(asdict(manifest), sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def write_manifest(dataset: Path, manifest: Manifest) -> None:
    write_json_atomic(dataset / MANIFEST, asdict(manifest))


Part = TypeVar("Part")


def _part(kind: type[Part], document: Any, place: str) -> Part:
    """A dataclass from its JSON object; refuses missing and unknown keys by name."""
    if not isinstance(document, dict):
        raise InvalidRecords(f"{place}: an object is expected, not {type(document).__name__}")
    names = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    if names != document.keys():
        wrong = ", ".join(sorted(names ^ document.keys()))
        raise InvalidRecords(f"{place}: missing or unknown keys: {wrong}; run preprocess again")
    return kind(**document)


def _split(document: Any, place: str) -> Split:
    split = _part(Split, document, place)
    shards = tuple(_part(Shard, shard, f"{place}.shards") for shard in split.shards)
    counted = (sum(shard.examples for shard in shards), sum(shard.positives for shard in shards))
    if counted != (split.examples, split.positives):
        raise InvalidRecords(f"{place}: shards hold {counted} examples and positives, the total says otherwise")
    return Split(examples=split.examples, positives=split.positives, shards=shards)


def read_manifest(dataset: Path) -> Manifest:
    """The manifest of a dataset folder.

    Raises:
        InvalidRecords: none there, damaged, or of another version.
    """
    path = dataset / MANIFEST
    if not path.is_file():
        raise InvalidRecords(f"{dataset}: no {MANIFEST} there, so it is not a dataset; make one with ctrflow preprocess")
    try:
        document = read_json(path)
    except ValueError as error:
        raise InvalidRecords(f"{path}: not valid JSON ({error}); run preprocess again") from error
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise InvalidRecords(f"{path}: format_version {FORMAT_VERSION} is expected; run preprocess again")
    try:
        manifest = _manifest(document, path)
    except (AttributeError, TypeError) as error:
        raise InvalidRecords(f"{path}: damaged ({error}); run preprocess again") from error
    if wrong := wrong_value(Manifest, manifest, "the document"):
        raise InvalidRecords(f"{path}: {wrong}; run preprocess again")
    if not 0.0 < manifest.negative_sampling_rate <= 1.0:
        raise InvalidRecords(f"{path}: negative_sampling_rate {manifest.negative_sampling_rate} is no share; run preprocess again")
    return manifest


def _manifest(document: dict[str, Any], path: Path) -> Manifest:
    manifest = _part(Manifest, document, str(path))
    if manifest.encoding not in ENCODINGS:
        raise InvalidRecords(f"{path}: encoding {manifest.encoding!r} is none of {', '.join(ENCODINGS)}")
    statistics = _part(Statistics, document["statistics"], f"{path}: statistics")
    columns = tuple(_part(ColumnStatistics, column, f"{path}: statistics.columns") for column in statistics.columns)
    try:
        schema = _part(Schema, document["schema"], f"{path}: schema")
    except WorkflowError as error:
        raise InvalidRecords(f"{path}: {error}") from error
    return Manifest(
        **{
            **document,
            "schema": schema,
            "train": _split(document["train"], f"{path}: train"),
            "validation": _split(document["validation"], f"{path}: validation"),
            "statistics": replace(
                statistics, distinct_ids_by_field=tuple(document["statistics"]["distinct_ids_by_field"]), columns=columns
            ),
            "held_out": _part(HeldOut, document["held_out"], f"{path}: held_out"),
            "sources": tuple(_part(Source, source, f"{path}: sources") for source in document["sources"]),
            "warnings": tuple(document["warnings"]),
        }
    )


def read_split(dataset: Path, manifest: Manifest, name: SplitName) -> Iterator[Batch]:
    """All rows of a split, shard by shard, as `read_one`."""
    for shard in manifest.split(name).shards:
        yield from read_one(dataset, manifest, shard)


def read_one(dataset: Path, manifest: Manifest, shard: Shard) -> Iterator[Batch]:
    """The rows of one shard, checked against the manifest's count.

    Raises:
        InvalidRecords: the shard is missing, damaged, or holds another number of rows.
    """
    path, found = dataset / shard.path, 0
    if not path.is_file():
        raise InvalidRecords(f"{path}: missing; the manifest lists it with {shard.examples} rows")
    for batch in read_shard(path, manifest.schema, manifest.encoding):
        found += len(batch)
        yield batch
    if found != shard.examples:
        raise InvalidRecords(f"{path}: {found} rows found, the manifest says {shard.examples}")
