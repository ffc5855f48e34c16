"""KFP interface of the train step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def train(
    dataset: dsl.Input[dsl.Dataset],
    plan: dsl.Input[dsl.Artifact],
    store: str,
    name: str,
    warm_start: bool,
    jobs: str,
    role: str,
    region: str,
    run_id: str,
    model: dsl.Output[dsl.Model],
    training: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """One training job by the plan.

    Args:
        warm_start: begin with the weights of the champion of that name in the store, if there is one.
        jobs: JSON of the fields of JobSettings, without role_arn and run_id.
        role, region: execution role and region of the jobs; no region: the environment's.
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from components.clients import use_region
    from components.figures import log_figures
    from components.job_settings import settings_of_step
    from components.train import step

    use_region(region)
    where = settings_of_step(jobs, role=role, run_id=run_id, dataset=dataset.uri)
    with TemporaryDirectory(prefix="ctrflow-champion-") as scratch:
        step.train(
            step.TrainStepConfig(),
            Path(dataset.path),
            Path(plan.path),
            Path(model.path),
            Path(training.path),
            Path(report.path),
            where,
            champion=step.champion_to_start_from(store, name, Path(scratch)) if warm_start else None,
        )
    log_figures(metrics, step.figures(Path(training.path)))
