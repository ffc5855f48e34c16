"""Recurring runs on Kubeflow Pipelines, one of each name; the server itself makes as many of a name as it is asked to.

A schedule's description carries digests of the recipe and of the pipeline, so that it can be compared with what is in the checkout.
"""

import json
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from components.errors import InvalidConfig, hint_for
from pipelines.cluster import KubeflowPipelines
from pipelines.cron import Cron, parse_cron
from pipelines.recipe import Recipe
from pipelines.submission import Package, compile_package

State = Literal["enabled", "paused"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What people and programs see of a schedule. Digests are empty where somebody else made it; `next` is, while it is paused."""

    name: str
    id: str
    cron: str
    words: str
    state: State
    next: tuple[str, ...]
    max_concurrency: int
    recipe_digest: str
    pipeline_digest: str

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "next": list(self.next)}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Whether a schedule runs what is in the checkout; None where it cannot be told."""

    recipe_is_same: bool | None
    pipeline_is_same: bool | None

    @property
    def sentence(self) -> str:
        pairs = (("recipe", self.recipe_is_same), ("pipeline", self.pipeline_is_same))
        differ = [what for what, same in pairs if same is False]
        if differ:
            return f"runs another {' and another '.join(differ)} than the checkout has; ctrflow schedule create replaces it"
        known = [what for what, same in pairs if same is not None]
        return f"runs the {' and the '.join(known)} of the checkout" if known else "made by somebody else; what it runs is unknown"


def describe(recipe: Recipe, pipeline_digest: str) -> str:
    """What a schedule carries."""
    return json.dumps({"ctrflow": "schedule", "recipe_digest": recipe.digest(), "pipeline_digest": pipeline_digest})


def schedule_of(found: Any, now: datetime | None = None) -> Schedule:
    """A schedule of the server's."""
    try:
        carried = json.loads(found.description or "{}")
        carried = carried if isinstance(carried, dict) else {}
    except ValueError:
        carried = {}
    enabled = found.status == "ENABLED" or (found.status is None and found.mode == "ENABLE")
    trigger = found.trigger
    cron = trigger.cron_schedule.cron if trigger and trigger.cron_schedule else ""
    words, following = _read(cron, now or datetime.now(UTC))
    if not cron and trigger and trigger.periodic_schedule:
        words = f"every {trigger.periodic_schedule.interval_second} s"
    return Schedule(
        name=found.display_name,
        id=found.recurring_run_id,
        cron=cron,
        words=words,
        state="enabled" if enabled else "paused",
        next=following if enabled else (),
        max_concurrency=int(found.max_concurrency or 0),
        recipe_digest=str(carried.get("recipe_digest", "")),
        pipeline_digest=str(carried.get("pipeline_digest", "")),
    )


def _read(cron: str, now: datetime) -> tuple[str, tuple[str, ...]]:
    """Words and next times; nothing of what others have written, and only KFP can read."""
    try:
        parsed = parse_cron(cron)
    except InvalidConfig:
        return "", ()
    return parsed.words, tuple(parsed.next_times(now))


def create(recipe: Recipe, name: str, cron: Cron, cluster: KubeflowPipelines, package: Package) -> tuple[Schedule, int]:
    """The schedule of that name, in the place of those that had it, and how many these were.

    The new one fires only after the old ones are gone: whatever comes between, no run is started twice.
    """
    old = cluster.schedules(name)
    made = cluster.create_schedule(
        experiment_id=cluster.experiment(recipe.cluster.experiment),
        job_name=name,
        description=describe(recipe, package.digest),
        cron_expression=cron.fields,
        max_concurrency=recipe.cluster.max_concurrency,
        no_catchup=True,
        params=dict(package.parameters),
        pipeline_id=package.pipeline_id,
        version_id=package.version_id,
        enabled=False,
        pipeline_root=recipe.cluster.pipeline_root,
        service_account=recipe.cluster.service_account or None,
    )
    for one in old:
        cluster.delete(one.recurring_run_id)
    cluster.enable(made.recurring_run_id)
    (found,) = cluster.schedules(name)
    return schedule_of(found), len(old)


def find(cluster: KubeflowPipelines, name: str) -> Any:
    """The server's schedule of a name.

    Raises:
        InvalidConfig: there is none, or several, which ctrflow never makes.
    """
    found = cluster.schedules(name)
    if not found:
        known = sorted(each.display_name for each in cluster.schedules())
        hint = hint_for(name, known) if known else "ctrflow schedule create makes one"
        raise InvalidConfig(f"schedule {name}: there is none; {hint}")
    if len(found) > 1:
        raise InvalidConfig(f"schedule {name}: there are {len(found)} of that name; ctrflow schedule create replaces them by one")
    return found[0]


def run_now(cluster: KubeflowPipelines, found: Any, now: datetime | None = None) -> Any:
    """One run of what a schedule runs, beside its times."""
    reference, config = found.pipeline_version_reference, found.runtime_config
    return cluster.create_run(
        experiment_id=found.experiment_id,
        job_name=f"{found.display_name} {now or datetime.now(UTC):%Y-%m-%d %H:%M:%S}",
        params=dict(config.parameters or {}) if config else {},
        pipeline_id=reference.pipeline_id,
        version_id=reference.pipeline_version_id,
        pipeline_root=config.pipeline_root if config else None,
        service_account=found.service_account,
    )


def compare(schedule: Schedule, recipe: Recipe | None) -> Compared:
    """A schedule against the recipe and the code of the checkout."""
    if not recipe or not schedule.recipe_digest:
        return Compared(recipe_is_same=None, pipeline_is_same=None)
    with tempfile.TemporaryDirectory() as folder:
        digest = compile_package(recipe, Path(folder) / "retrain.yaml")
    return Compared(
        recipe_is_same=recipe.digest() == schedule.recipe_digest,
        pipeline_is_same=digest == schedule.pipeline_digest if schedule.pipeline_digest else None,
    )
