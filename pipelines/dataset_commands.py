"""ctrflow dataset: look into a dataset, check it, write it in another encoding."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from components.records import ENCODINGS
from pipelines.commands import Answer, Group, wants_json

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.group(cls=Group)
def dataset() -> None:
    """Look into a dataset, check every byte of it, or write it in another encoding."""


@dataset.command()
@click.argument("folder", metavar="DATASET", type=FOLDER)
@click.option("--rows", type=click.IntRange(min=0), default=0, help="also print so many rows of the train split")
def show(folder: Path, rows: int) -> Answer:
    """Print what DATASET holds: splits, click rate, shards, sources, rejected rows, warnings."""
    from components.manifest import read_manifest
    from components.summaries import first_rows, row_text, summarize, summary_text

    manifest = read_manifest(folder)
    summary, first = summarize(manifest), first_rows(folder, manifest, rows) if rows else []
    text = summary_text(str(folder), summary)
    return Answer(
        text="\n".join([text, "", *map(row_text, first)]) if first else text,
        document={"dataset": str(folder), **asdict(summary), "first_rows": [asdict(row) for row in first]},
    )


@dataset.command()
@click.argument("folder", metavar="DATASET", type=FOLDER)
@click.option("--processes", type=click.IntRange(min=1), help="default: the CPUs of this container")
@click.option("--most", type=click.IntRange(min=1), default=20, help="problems to print of the folder and of each shard")
def verify(folder: Path, processes: int | None, most: int) -> Answer:
    """Check every byte, record, row and count of DATASET against its manifest; exit 1 when something is wrong."""
    from components.errors import InvalidRecords
    from components.verification import verify_dataset

    manifest, problems = verify_dataset(folder, processes or _cpus(), most)
    for problem in problems.named:
        click.echo(problem, err=wants_json())
    if problems.count:
        unnamed = problems.count - len(problems.named)
        more = f", {unnamed} of them not printed (--most)" if unnamed else ""
        raise InvalidRecords(f"{folder}: {problems.count} problem{'s' * (problems.count > 1)}{more}; preprocess again")
    shards = len(manifest.train.shards) + len(manifest.validation.shards)
    rows = manifest.train.examples + manifest.validation.examples
    return Answer(
        text=f"{folder}: {rows:,} rows in {shards:,} shards, all as the manifest says",
        document={"dataset": str(folder), "rows": rows, "shards": shards, "problems": 0},
    )


@dataset.command()
@click.argument("folder", metavar="DATASET", type=FOLDER)
@click.argument("out", type=FOLDER)
@click.option("--encoding", type=click.Choice(ENCODINGS), default="blocks")
@click.option("--shards", type=click.IntRange(min=1), help="files of the train split; default: as many as DATASET has")
@click.option("--processes", type=click.IntRange(min=1), help="default: the CPUs of this container")
def convert(folder: Path, out: Path, encoding: Any, shards: int | None, processes: int | None) -> Answer:
    """Write the rows of DATASET to OUT in another encoding or number of shards, verified as they are read."""
    from components.conversion import convert_dataset

    manifest = convert_dataset(folder, out, encoding, processes or _cpus(), shards or 0)
    train, validation = manifest.train.examples, manifest.validation.examples
    return Answer(
        text=f"{out}: {train:,} rows to train, {validation:,} to validate, as {encoding}",
        document={"dataset": str(out), "train": train, "validation": validation, "encoding": encoding},
    )


def _cpus() -> int:
    from components.resources import usable_cpus

    return usable_cpus().count
