"""KFP interface of the evaluate step."""

from kfp import dsl

from components.images import STEPS


@dsl.component(base_image=STEPS, install_kfp_package=False)
def evaluate(
    model: dsl.Input[dsl.Model],
    dataset: dsl.Input[dsl.Dataset],
    store: str,
    name: str,
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """Exact metrics of the model, and of the champion on the same rows."""
    from pathlib import Path

    from components.evaluate import step

    config = step.EvaluateConfig(name=name)
    found = step.evaluate(config, Path(model.path), Path(dataset.path), Path(evaluation.path), Path(report.path), Path(store))
    # KFP takes finite numbers only; an undefined metric is left out.
    for key in ("auc", "log_loss", "normalized_entropy"):
        if getattr(found, key) is not None:
            metrics.log_metric(key, getattr(found, key))
