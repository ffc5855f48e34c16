"""What a dataset holds, in one look: as text for people, as a document for programs. Only manifest.json is read for it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from components.manifest import SPLITS, ColumnStatistics, HeldOut, Manifest, Source, Split, manifest_digest, read_split
from components.records import Schema


@dataclass(frozen=True, kw_only=True)
class SplitSummary:
    """`click_rate` is None without rows; shard sizes are in bytes."""

    rows: int
    clicks: int
    click_rate: float | None
    shards: int
    bytes: int
    smallest_shard: int
    largest_shard: int


@dataclass(frozen=True, kw_only=True)
class Summary:
    """`digest` is the identity of the dataset (manifest_digest); `left_out` counts negative rows that sampling left out."""

    digest: str
    encoding: str
    schema: Schema
    rows: int
    click_rate: float | None
    splits: dict[str, SplitSummary]
    held_out: HeldOut
    negative_sampling_rate: float
    left_out: int
    columns: tuple[ColumnStatistics, ...]
    sources: tuple[Source, ...]
    rejected: dict[str, int]
    warnings: tuple[str, ...]
    versions: dict[str, str]


def summarize(manifest: Manifest) -> Summary:
    parts = [manifest.split(name) for name in SPLITS]
    rows, clicks = sum(part.examples for part in parts), sum(part.positives for part in parts)
    return Summary(
        digest=manifest_digest(manifest),
        encoding=manifest.encoding,
        schema=manifest.schema,
        rows=rows,
        click_rate=clicks / rows if rows else None,
        splits={name: _summary_of(manifest.split(name)) for name in SPLITS},
        held_out=manifest.held_out,
        negative_sampling_rate=manifest.negative_sampling_rate,
        left_out=sum(source.left_out for source in manifest.sources),
        columns=manifest.statistics.columns,
        sources=manifest.sources,
        rejected=rejected_rows(manifest.sources),
        warnings=manifest.warnings,
        versions=manifest.versions,
    )


def _summary_of(split: Split) -> SplitSummary:
    sizes = [shard.bytes for shard in split.shards] or [0]
    return SplitSummary(
        rows=split.examples,
        clicks=split.positives,
        click_rate=split.positives / split.examples if split.examples else None,
        shards=len(split.shards),
        bytes=sum(sizes),
        smallest_shard=min(sizes),
        largest_shard=max(sizes),
    )


def rejected_rows(sources: Sequence[Source]) -> dict[str, int]:
    """Skipped rows of all sources by reason, the most frequent first."""
    total: Counter[str] = Counter()
    for source in sources:
        total.update(source.rejected)
    return dict(total.most_common())


def rate(click_rate: float | None) -> str:
    return "-" if click_rate is None else f"{click_rate:.2%}"


def held_out_text(held_out: HeldOut) -> str:
    """How rows were divided, as one sentence."""
    share = "" if held_out.fraction is None else f"{100 * held_out.fraction:.6g}% of "
    if held_out.by == "row":
        return f"validation: {share}the rows, each drawn by itself"
    if held_out.by == "hash":
        return f"validation: all rows of {share}the texts in column {held_out.column}"
    return f"validation: the rows from {held_out.boundary} on, by column {held_out.column}"


def sampling_text(negative_rate: float, left_out: int) -> str:
    """What was done to the negative rows, as one sentence."""
    return (
        f"{negative_rate:g} of the negative training rows were kept, {left_out:,} left out; "
        "a model trained on them is corrected when it is saved"
    )


def source_table(sources: Sequence[Source]) -> list[tuple[str, ...]]:
    """A line for each file, below the names of the columns."""
    sampled = any(source.left_out for source in sources)
    lines = [("source", "rows", *(("left out",) if sampled else ()), "rejected", "MB", "sha256")]
    for source in sources:
        left_out = (f"{source.left_out:,}",) if sampled else ()
        rejected = f"{sum(source.rejected.values()):,}"
        lines.append(
            (source.path, f"{source.rows:,}", *left_out, rejected, f"{source.bytes / 1e6:,.1f}", source.sha256[:16]),
        )
    return lines


def column_table(columns: Sequence[ColumnStatistics]) -> list[tuple[str, ...]]:
    """A line for each column of a table, below what it shows of them."""
    lines: list[tuple[str, ...]] = [("column", "missing", "rare or unseen", "distinct tokens", "share that collides")]
    for column in columns:
        unseen, distinct = ("" if count is None else f"{count:,}" for count in (column.unseen, column.distinct))
        collides = "" if column.collision_rate is None else f"{column.collision_rate:.2%}"
        lines.append((column.name, f"{column.missing:,}", unseen, distinct, collides))
    return lines


def summary_text(name: str, summary: Summary) -> str:
    """The page of a terminal; `name` is what the dataset is called."""
    schema = summary.schema
    lines = [
        f"{name}: {summary.rows:,} rows of {schema.field_size} fields, {rate(summary.click_rate)} clicks, "
        f"{schema.feature_size:,} ids in the table",
        f"encoding {summary.encoding}; ids of the sources start at {schema.id_base}; digest {summary.digest[:16]}",
    ]
    lines.append(held_out_text(summary.held_out))
    if summary.negative_sampling_rate != 1.0:
        lines.append(sampling_text(summary.negative_sampling_rate, summary.left_out))
    header = ("split", "rows", "clicks", "click rate", "shards", "MB", "smallest shard", "largest")
    rows = [
        (
            split,
            f"{part.rows:,}",
            f"{part.clicks:,}",
            rate(part.click_rate),
            f"{part.shards:,}",
            f"{part.bytes / 1e6:,.1f}",
            f"{part.smallest_shard / 1e6:,.1f} MB",
            f"{part.largest_shard / 1e6:,.1f} MB",
        )
        for split, part in summary.splits.items()
    ]
    lines += ["", *_columns([header, *rows])]
    if summary.sources:
        lines += ["", *_columns(source_table(summary.sources))]
    if summary.columns:
        lines += ["", *_columns(column_table(summary.columns))]
    if summary.rejected:
        lines += ["", "rejected: " + ", ".join(f"{count:,} {reason}" for reason, count in summary.rejected.items())]
    lines += ["", *(f"warning: {warning}" for warning in summary.warnings)] if summary.warnings else []
    lines += ["", "written by " + ", ".join(f"{tool} {version}" for tool, version in summary.versions.items())]
    return "\n".join(lines)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells as lines: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)])

    return [line(row) for row in rows]


def figures(manifest: Manifest) -> dict[str, float | None]:
    """What KFP shows of a dataset: rows that it holds and rows that were skipped, clicks in 0..1, the size of the table."""
    rejected = sum(sum(source.rejected.values()) for source in manifest.sources)
    rows = {"train_rows": manifest.train.examples, "validation_rows": manifest.validation.examples, "rejected_rows": rejected}
    size = {"ids": manifest.schema.feature_size, "train_shards": len(manifest.train.shards), "warnings": len(manifest.warnings)}
    return {**rows, "click_rate": manifest.statistics.click_rate, **size}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the train split, as it is stored."""

    label: int
    ids: list[int]
    values: list[float]


def first_rows(dataset: Path, manifest: Manifest, count: int) -> list[Row]:
    """The first rows of the train split.

    Raises:
        InvalidRecords: a shard is missing or damaged.
    """
    rows = (
        Row(label=int(label), ids=ids.tolist(), values=values.tolist())
        for batch in read_split(dataset, manifest, "train")
        for label, ids, values in zip(batch.labels, batch.ids, batch.values, strict=True)
    )
    return list(islice(rows, count))


def row_text(row: Row) -> str:
    """label id:value id:value ..."""
    return " ".join([str(row.label), *(f"{number}:{value:g}" for number, value in zip(row.ids, row.values, strict=True))])
