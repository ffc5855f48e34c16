"""KFP interface of the select_strategy step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def select_strategy(
    profile: dsl.Input[dsl.Artifact],
    dataset: dsl.Input[dsl.Dataset],
    force: str,
    limits: str,
    instances: str,
    jobs: str,
    role: str,
    region: str,
    run_id: str,
    plan: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """The ladder, and a race of the best candidates.

    Args:
        force: a strategy, or empty to let the ladder choose.
        limits: a JSON object of the fields of Limits; what is left out has its default.
        instances: the text of a CSV file of own prices and types, see components/instances.py; empty: none.
        jobs: JSON of the fields of JobSettings, without role_arn and run_id.
        role, region: execution role and region of the jobs; no region: the environment's.
    """
    from pathlib import Path
    from typing import Any, cast

    from components.clients import use_region
    from components.figures import log_figures
    from components.instances import instances_file
    from components.job_settings import settings_of_step
    from components.select_strategy import step
    from components.select_strategy.limits import limits_of

    use_region(region)
    where = settings_of_step(jobs, role=role, run_id=run_id, dataset=dataset.uri)
    with instances_file(instances) as own:
        config = step.SelectConfig(force=cast(Any, force or None), limits=limits_of(limits), instances=own)
        chosen = step.select_strategy(config, Path(profile.path), Path(dataset.path), Path(plan.path), Path(report.path), where)
    log_figures(metrics, step.figures(chosen))
