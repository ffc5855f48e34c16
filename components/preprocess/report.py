"""The dataset in one look: rows, splits, click rate, shards, rejected rows, ids by field, sources."""

from collections.abc import Sequence

from components.manifest import Manifest
from components.reports import Page
from components.summaries import column_table, held_out_text, rate, sampling_text, source_table, summarize

# More bars than these are no one look any more.
MOST_BARS = 60


def dataset_report(manifest: Manifest) -> Page:
    """The page of one dataset."""
    summary, statistics, schema = summarize(manifest), manifest.statistics, manifest.schema
    rejected = sum(summary.rejected.values())
    read = rejected + summary.left_out + sum(source.rows for source in manifest.sources)
    page = Page(
        "Dataset",
        f"{summary.rows:,} rows of {schema.field_size} fields, {rate(summary.click_rate)} clicks, "
        f"{schema.feature_size:,} ids in the table, encoding {manifest.encoding}"
        + (f"; {rejected:,} rows rejected." if rejected else "."),
    )
    for warning in manifest.warnings:
        page.warning(warning)
    page.section("Splits")
    page.table(
        ("split", "rows", "clicks", "click rate", "shards", "MB", "MB of the smallest", "of the largest"),
        [
            (
                name,
                f"{part.rows:,}",
                f"{part.clicks:,}",
                rate(part.click_rate),
                f"{part.shards:,}",
                f"{part.bytes / 1e6:,.1f}",
                f"{part.smallest_shard / 1e6:,.1f}",
                f"{part.largest_shard / 1e6:,.1f}",
            )
            for name, part in summary.splits.items()
        ],
    )
    page.paragraph(f"{held_out_text(summary.held_out)}.")
    if summary.negative_sampling_rate != 1.0:
        page.paragraph(f"{sampling_text(summary.negative_sampling_rate, summary.left_out)}.")
    if summary.rejected:
        page.section("Rejected rows")
        page.paragraph(f"{rejected:,} of {read:,} rows of the sources were skipped; the dataset does not hold them.")
        page.bars("Rejected rows by reason", "rows", [(reason, float(count)) for reason, count in summary.rejected.items()])
    page.section("Ids and values")
    page.table(
        ("smallest id", "largest id", "smallest value", "largest value", "missing cells", "validation rows also in train"),
        [
            (
                str(statistics.smallest_id),
                str(statistics.largest_id),
                f"{statistics.smallest_value:g}",
                f"{statistics.largest_value:g}",
                f"{statistics.missing:,}",
                f"{statistics.validation_rows_in_train:,}",
            )
        ],
    )
    _cardinalities(page, statistics.distinct_ids_by_field)
    if summary.columns:
        page.section("Columns")
        header, *lines = column_table(summary.columns)
        page.table(header, lines)
    page.section("Sources")
    header, *lines = source_table(manifest.sources)
    page.table(header, lines)
    return page


def _cardinalities(page: Page, distinct_ids: Sequence[int]) -> None:
    """How many ids each field has; of very many fields those with the most."""
    fields = list(enumerate(distinct_ids))
    title = "Distinct ids by field"
    if len(fields) > MOST_BARS:
        fields = sorted(fields, key=lambda field: -field[1])[:MOST_BARS]
        title += f", the {MOST_BARS} fields of {len(distinct_ids):,} that have the most"
    page.bars(title, "ids", [(f"field {field}", float(count)) for field, count in fields])
    if constant := [field for field, count in enumerate(distinct_ids) if count == 1]:
        some = ", ".join(map(str, constant[:MOST_BARS])) + (" ..." if len(constant) > MOST_BARS else "")
        page.paragraph(f"{len(constant):,} fields have one id in every row ({some}): only their value tells rows apart.")
