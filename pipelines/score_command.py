"""`ctrflow score`: raw rows through a model and the transform saved with it."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from components.errors import InvalidConfig
from pipelines.commands import Answer, Command, wants_json
from pipelines.source_options import reading_options

FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.argument("model", type=FOLDER)
@click.argument("inputs", nargs=-1, required=True)
@click.option("--out", type=FILE, help="CSV of row and probability; without it they are printed")
@reading_options
def score(model: Path, inputs: tuple[str, ...], out: Path | None, **options: Any) -> Answer | None:
    """Score raw rows of INPUTS (files, folders or globs, local or s3://) by MODEL and the transform saved with it, in their order.

    Tables may have the label or not; rows of libsvm, libffm and of ids in tfrecord have one. It is passed over.
    """
    from components.storage import atomic_text
    from pipelines.scoring import open_source, score_rows

    with TemporaryDirectory(prefix="ctrflow-") as scratch:
        source = open_source(model, inputs, options, Path(scratch))
        if out is None:
            if wants_json():
                raise InvalidConfig("--json: say where the scores go, --out scores.csv; standard output is the document's then")
            score_rows(model, source, sys.stdout)
            return None
        if out.resolve() in [path.resolve() for path in source.files]:
            raise InvalidConfig(f"--out {out}: is an input; name another file")
        with atomic_text(out) as file:
            scored = score_rows(model, source, file)
    said = f"{out}: {scored.rows:,} rows scored" + (f", {scored.skipped:,} skipped" if scored.skipped else "")
    return Answer(text=said, document={"out": str(out), "rows": scored.rows, "skipped": scored.skipped})
