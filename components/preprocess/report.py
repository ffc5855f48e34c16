"""The dataset in one look: rows, splits, click rate, ids, sources."""

from components.manifest import SPLITS, Manifest
from components.reports import Page


def dataset_report(manifest: Manifest) -> Page:
    """The page of one dataset."""
    rows = manifest.train.examples + manifest.validation.examples
    statistics, schema = manifest.statistics, manifest.schema
    page = Page(
        "Dataset",
        f"{rows:,} rows of {schema.field_size} fields, {statistics.click_rate:.2%} clicks, "
        f"{schema.feature_size:,} ids in the table, encoding {manifest.encoding}.",
    )
    for warning in manifest.warnings:
        page.warning(warning)
    page.section("Splits")
    parts = [(name, manifest.split(name)) for name in SPLITS]
    page.table(
        ("split", "rows", "clicks", "click rate", "shards", "MB"),
        [
            (
                name,
                f"{part.examples:,}",
                f"{part.positives:,}",
                f"{part.positives / part.examples:.2%}",
                str(len(part.shards)),
                f"{sum(shard.bytes for shard in part.shards) / 1e6:.1f}",
            )
            for name, part in parts
        ],
    )
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
    page.bars("Distinct ids by field", "ids", [(str(f), float(n)) for f, n in enumerate(statistics.distinct_ids_by_field)])
    page.section("Sources")
    page.table(
        ("file", "rows", "bytes", "sha256"),
        [(source.path, f"{source.rows:,}", f"{source.bytes:,}", source.sha256[:16]) for source in manifest.sources],
    )
    return page
