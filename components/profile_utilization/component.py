"""KFP interface of the profile_utilization step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def profile_utilization(
    dataset: dsl.Input[dsl.Dataset],
    model: str,
    own_model: str,
    embedding_size: int,
    deep_layers: str,
    cross_layers: int,
    cross_rank: int,
    dropout: str,
    batch_norm: bool,
    batch_norm_momentum: float,
    l2: float,
    mixed_precision: bool,
    optimizer: str,
    momentum: float,
    ftrl_l1: float,
    ftrl_l2: float,
    learning_rate: float,
    learning_rate_factor: float,
    warmup_steps: int,
    batch_size: int,
    epochs: int,
    seed: int,
    budget_s: float,
    instances: str,
    jobs: str,
    role: str,
    region: str,
    run_id: str,
    profile: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """What bounds training on one host, by short real training jobs.

    Args:
        model to seed: what is learned, see components.learning; `deep_layers` and `dropout` are numbers separated by commas.
        budget_s: for all probes; 0 = 180 s of a local run, 900 paid seconds on SageMaker.
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
    from components.plan import ModelSettings
    from components.profile_utilization import step

    settings = ModelSettings(
        model=cast(Any, model),
        own_model=own_model,
        embedding_size=embedding_size,
        deep_layers=tuple(int(width) for width in deep_layers.split(",") if width.strip()),
        cross_layers=cross_layers,
        cross_rank=cross_rank,
        dropout=tuple(float(rate) for rate in dropout.split(",") if rate.strip()),
        batch_norm=batch_norm,
        batch_norm_momentum=batch_norm_momentum,
        l2=l2,
        mixed_precision=mixed_precision,
        optimizer=cast(Any, optimizer),
        momentum=momentum,
        ftrl_l1=ftrl_l1,
        ftrl_l2=ftrl_l2,
        learning_rate=learning_rate,
        learning_rate_factor=learning_rate_factor,
        warmup_steps=warmup_steps,
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
    )
    use_region(region)
    where = settings_of_step(jobs, role=role, run_id=run_id, dataset=dataset.uri)
    with instances_file(instances) as own:
        config = step.ProfileConfig(settings=settings, budget_s=budget_s, instances=own)
        found = step.profile_utilization(config, Path(dataset.path), Path(profile.path), Path(report.path), where)
    log_figures(metrics, step.figures(found))
