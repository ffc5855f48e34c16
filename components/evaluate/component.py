"""KFP interface of the evaluate step."""

from kfp import dsl

from components.images import TRAINING


@dsl.component(base_image=TRAINING, install_kfp_package=False)
def evaluate(
    model: dsl.Input[dsl.Model],
    dataset: dsl.Input[dsl.Dataset],
    champion_dataset: dsl.Input[dsl.Dataset],
    store: str,
    name: str,
    slices: str,
    evaluation: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    classification: dsl.Output[dsl.ClassificationMetrics],
    report: dsl.Output[dsl.HTML],
) -> None:
    """Exact metrics of the model, and of the champion on the same rows.

    Args:
        champion_dataset: the same rows by the champion's transform, or a folder that holds none.
        slices: names of fields, separated by commas, by whose values the rows are measured apart.
    """
    from pathlib import Path

    from components.evaluate import step
    from components.figures import log_figures
    from components.manifest import MANIFEST

    config = step.EvaluateConfig(name=name, slices=step.names_of(slices))
    others = Path(champion_dataset.path)
    found = step.evaluate(
        config,
        Path(model.path),
        Path(dataset.path),
        Path(evaluation.path),
        Path(report.path),
        store,
        others if (others / MANIFEST).is_file() else None,
    )
    log_figures(metrics, step.figures(found))
    if found.roc:
        classification.log_roc_curve([x for x, _ in found.roc], [y for _, y in found.roc], list(found.roc_thresholds))
