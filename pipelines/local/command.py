"""`ctrflow run`: the sample or the user's data, the compiled pipeline, the run, and what is printed of it."""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from components.errors import WorkflowError
from components.images import TRAINING
from pipelines.compiled import compile_retrain
from pipelines.console import RunConsole, summary
from pipelines.local.run import LOCAL_ROLE, LocalRun, job_settings
from pipelines.recipe import Recipe
from pipelines.run_page import PIPELINE, pipeline_edges, write_run_page
from pipelines.runs import Run, RunRecord, check_run_id, new_run_id
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
    recipe: Recipe, *, pipeline: Path | None, run_id: str, schedule: str, verbose: bool, as_json: bool, started: float
) -> tuple[int, Run]:
    """The exit code, which is 0, or 128 and the number of the signal that stopped the run; and the run's record.

    Args:
        pipeline: a compiled YAML; None compiles the installed code. run_id: the run's name; empty: the time.
        schedule: the one that began it; empty: a person did.
        as_json: standard output is for a document. started: monotonic time of the command's start.
    Raises:
        WorkflowError: bad input, or a step failed.
    """
    run_id = run_id or new_run_id()
    check_run_id(run_id)
    runs, best_auc = Path(recipe.runs).absolute(), None
    models = recipe.models if "://" in recipe.models else str(Path(recipe.models).absolute())
    inputs = [one if "://" in one else str(Path(one).absolute()) for one in recipe.data]
    if not inputs:
        sample, best_auc = built_in_sample(runs, recipe.sample_rows)
        inputs = [str(sample)]
    folder = runs / run_id
    parameters = {
        **recipe.parameters(),
        "inputs": json.dumps(inputs),
        "jobs": job_settings(folder, TRAINING),
        "role": LOCAL_ROLE,
        "store": models,
    }
    record = RunRecord(runs, run_id, parameters, schedule=schedule, written=write_run_page)
    console = RunConsole(verbose=verbose, stderr=as_json)
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
        return 128 + stopped.number, record.run
    finally:
        console.stop()
    total_s = time.monotonic() - started
    console.console.print(summary(record.run, folder, total_s=total_s, endpoint_s=local.endpoint_s, best_auc=best_auc))
    return 0, record.run
