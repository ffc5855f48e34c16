"""KFP interface of the preprocess step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def preprocess(
    inputs: str,
    format: str,
    field_size: int,
    feature_size: int,
    id_base: int,
    validation_fraction: float,
    seed: int,
    dataset: dsl.Output[dsl.Dataset],
    report: dsl.Output[dsl.HTML],
) -> None:
    """Raw click logs into a dataset.

    Args:
        inputs: a JSON list of paths, folders and globs.
    """
    import json
    from pathlib import Path
    from typing import Any, cast

    from components.preprocess.config import PreprocessConfig
    from components.preprocess.step import preprocess as run

    config = PreprocessConfig(
        format=cast(Any, format),
        field_size=field_size,
        feature_size=feature_size,
        id_base=id_base,
        validation_fraction=validation_fraction,
        seed=seed,
    )
    run(config, json.loads(inputs), Path(dataset.path), Path(report.path))
