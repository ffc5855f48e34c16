"""KFP interface of the profile_utilization step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def profile_utilization(
    dataset: dsl.Input[dsl.Dataset],
    embedding_size: int,
    deep_layers: str,
    optimizer: str,
    learning_rate: float,
    learning_rate_factor: float,
    warmup_steps: int,
    batch_size: int,
    epochs: int,
    seed: int,
    budget_s: float,
    jobs: str,
    run_id: str,
    profile: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
) -> None:
    """What bounds training on one host, by short real training jobs.

    Args:
        deep_layers: widths separated by commas.
        jobs: JSON of the fields of JobSettings, without run_id.
    """
    import json
    from pathlib import Path
    from typing import Any, cast

    from components.plan import ModelSettings
    from components.probes import JobSettings
    from components.profile_utilization import step

    settings = ModelSettings(
        embedding_size=embedding_size,
        deep_layers=tuple(int(width) for width in deep_layers.split(",") if width.strip()),
        optimizer=cast(Any, optimizer),
        learning_rate=learning_rate,
        learning_rate_factor=learning_rate_factor,
        warmup_steps=warmup_steps,
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
    )
    config = step.ProfileConfig(settings=settings, budget_s=budget_s)
    where = JobSettings(**json.loads(jobs), run_id=run_id)
    step.profile_utilization(config, Path(dataset.path), Path(profile.path), Path(report.path), where)
