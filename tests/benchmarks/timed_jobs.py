"""Plans as real jobs of a set time at the local endpoint, for benchmarks."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from components.job_settings import JobSettings
from components.plan import Plan
from components.probes import PROBE_STEPS, run_plan
from components.training_results import TrainingResult


def run_for(plan: Plan, dataset: Path, jobs: JobSettings, *, task: str, seconds: float) -> TrainingResult:
    """Train by a plan for so many seconds after the warm-up, input included, and keep the figures only."""
    with TemporaryDirectory() as folder:
        endless = replace(plan, steps=PROBE_STEPS)
        _, result = run_plan(endless, dataset, jobs, task=task, folder=Path(folder), probe="both", max_seconds=seconds)
    return result
