"""The figures that matter of each step, read from the artifacts it left."""

import json
from collections.abc import Callable
from pathlib import Path

from components.evaluation import read_evaluation
from components.manifest import read_manifest
from components.plan_file import read_plan
from components.profile import fastest, read_profile


def _preprocess(task: Path) -> str:
    manifest = read_manifest(task / "dataset")
    rows, statistics = manifest.train.examples + manifest.validation.examples, manifest.statistics
    warnings = f", {len(manifest.warnings)} warnings in its report" if manifest.warnings else ""
    return f"{rows:,} rows, {statistics.click_rate:.1%} clicks, {manifest.schema.feature_size:,} ids{warnings}"


def _profile_utilization(task: Path) -> str:
    profile = read_profile(task / "profile")
    best = fastest(profile.of_kind("both"))
    alone = " ".join(f"{kind} {fastest(profile.of_kind(kind)).examples_per_s:,.0f}" for kind in ("input", "compute"))
    return f"{best.examples_per_s:,.0f} examples/s ({alone} alone), {best.utilization:.0%} of {best.usable_cpus:g} CPUs"


def _select_strategy(task: Path) -> str:
    return read_plan(task / "plan").summary()


def _train(task: Path) -> str:
    training = json.loads((task / "training").read_text(encoding="utf-8"))
    return f"{training['examples']:,} examples at {training['examples_per_s']:,.0f}/s, loss {training['final_loss']:.4f}"


def _evaluate(task: Path) -> str:
    evaluation = read_evaluation(task / "evaluation")
    if evaluation.auc is None:
        return f"AUC undefined: {evaluation.auc_reason}"
    champion = evaluation.champion
    against = f", champion's {champion.auc:.4f}" if champion and champion.auc is not None else ""
    return f"AUC {evaluation.auc:.4f}{against}, log loss {evaluation.log_loss:.4f}, {evaluation.rows:,} rows"


def _promote(task: Path) -> str:
    promotion = json.loads((task / "promotion").read_text(encoding="utf-8"))
    return f"promoted as version {promotion['version']}" if promotion["promoted"] else f"not promoted: {promotion['reason']}"


READERS: dict[str, Callable[[Path], str]] = {
    "preprocess": _preprocess,
    "profile-utilization": _profile_utilization,
    "select-strategy": _select_strategy,
    "train": _train,
    "evaluate": _evaluate,
    "promote": _promote,
}


def figures(task: str, folder: Path) -> str:
    """One line about a finished task, whose outputs lie in `folder`."""
    return READERS[task](folder) if task in READERS else ""
