"""KFP interface of the promote step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def promote(
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    store: str,
    name: str,
    margin: float,
    require_promotion: bool,
    run_id: str,
    promotion: dsl.Output[dsl.Artifact],
    report: dsl.Output[dsl.HTML],
) -> None:
    """The gate; the model becomes the champion if it passes."""
    from pathlib import Path

    from components.promote import step

    config = step.PromoteConfig(name=name, margin=margin, run_id=run_id, require_promotion=require_promotion)
    step.promote(config, Path(model.path), Path(evaluation.path), Path(store), Path(promotion.path), Path(report.path))
