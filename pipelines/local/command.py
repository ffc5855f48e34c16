"""`ctrflow run`: the sample or the user's data, the compiled pipeline, the run, and what is printed of it."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from components.errors import WorkflowError
from components.images import TRAINING
from pipelines.compiled import compile_retrain
from pipelines.console import RunConsole, summary
from pipelines.local.run import LocalRun, job_settings
from pipelines.run_page import PIPELINE, pipeline_edges, write_run_page
from pipelines.runs import RunRecord, new_run_id
from pipelines.sample import write_sample
from pipelines.signals import Stopped

SAMPLE_SEED = 1


def built_in_sample(runs: Path, rows: int) -> tuple[Path, float]:
    """The sample file, made once for each number of rows, and the best AUC on it."""
    path = runs / "sample" / f"clicks-{rows}.tsv"
    facts = path.with_name(path.name + ".json")
    if not (path.is_file() and facts.is_file()):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sample(path, rows, SAMPLE_SEED)
    return path, float(json.loads(facts.read_text(encoding="utf-8"))["best_auc"])


@contextmanager
def recorded(record: RunRecord) -> Iterator[None]:
    """However the block ends, the record says so."""
    try:
        yield
    except Stopped as stopped:
        record.end("stopped", f"stopped by {stopped}")
        raise
    except WorkflowError as error:
        record.end("failed", str(error))
        raise
    except BaseException as error:
        record.end("failed", f"{type(error).__name__}: {error}")
        raise
    record.end("succeeded")


def run_pipeline(
    options: Mapping[str, Any],
    *,
    data: Sequence[str],
    sample_rows: int,
    runs: Path,
    models: str,
    pipeline: Path | None,
    verbose: bool,
    started: float,
) -> int:
    """The exit code: 0, or 128 and the number of the signal that stopped the run.

    Args:
        options: parameters of the pipeline by name. models: the store, a folder or s3://bucket/folder.
        started: monotonic time of the command's start.
    Raises:
        WorkflowError: bad input, or a step failed.
    """
    best_auc = None
    inputs = [one if "://" in one else str(Path(one).absolute()) for one in data]
    if not inputs:
        sample, best_auc = built_in_sample(runs, sample_rows)
        inputs = [str(sample.absolute())]
    run_id = new_run_id()
    folder = runs.absolute() / run_id
    parameters = {
        **options,
        "inputs": json.dumps(inputs),
        "jobs": job_settings(folder, TRAINING),
        "store": models if "://" in models else str(Path(models).absolute()),
    }
    record = RunRecord(runs.absolute(), run_id, parameters, written=write_run_page)
    console = RunConsole(verbose=verbose)
    try:
        with recorded(record):
            console.console.print(f"run {run_id} in {folder}", markup=False, soft_wrap=True)
            ran = folder / PIPELINE
            if pipeline is None:
                compile_retrain(ran)
            else:
                pipeline_edges(pipeline)
                shutil.copyfile(pipeline, ran)
            local = LocalRun(record, ran, parameters, console.listener())
            local.run()
    except Stopped as stopped:
        console.stop()
        with suppress(OSError):  # a terminal that was closed takes no lines
            click.echo(f"ctrflow: stopped by {stopped}; everything that ran has ended; record: {folder / 'run.json'}", err=True)
        return 128 + stopped.number
    finally:
        console.stop()
    total_s = time.monotonic() - started
    console.console.print(summary(record.run, folder, total_s=total_s, endpoint_s=local.endpoint_s, best_auc=best_auc))
    return 0
