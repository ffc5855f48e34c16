"""KFP interface of the promote step."""

from kfp import dsl

from components.images import TRAINING


@dsl.component(base_image=TRAINING, install_kfp_package=False)
def promote(
    model: dsl.Input[dsl.Model],
    evaluation: dsl.Input[dsl.Artifact],
    training: dsl.Input[dsl.Artifact],
    preprocess_report: dsl.Input[dsl.HTML],
    profile_report: dsl.Input[dsl.HTML],
    select_report: dsl.Input[dsl.HTML],
    train_report: dsl.Input[dsl.HTML],
    evaluate_report: dsl.Input[dsl.HTML],
    store: str,
    name: str,
    margin: float,
    policy: str,
    require_promotion: bool,
    run_id: str,
    promotion: dsl.Output[dsl.Artifact],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
    summary: dsl.Output[dsl.Markdown],
) -> None:
    """The gate; the model becomes the champion if it passes. The last step also sums up the run, by the reports of all.

    Args:
        store: folder of the model store, or s3://bucket/folder.
        policy: JSON of the fields of Policy that shall not have their defaults.
    """
    from pathlib import Path

    from components.figures import log_figures
    from components.promote import step
    from components.promote.policy import policy_of
    from components.run_summary import StepReport, write_run_summary

    config = step.PromoteConfig(
        name=name, margin=margin, policy=policy_of(policy), run_id=run_id, require_promotion=require_promotion
    )
    paths = Path(promotion.path), Path(report.path), Path(training.path)
    log_figures(metrics, step.figures(step.promote(config, Path(model.path), Path(evaluation.path), store, *paths)))
    reports = {
        "preprocess": preprocess_report,
        "profile_utilization": profile_report,
        "select_strategy": select_report,
        "train": train_report,
        "evaluate": evaluate_report,
        "promote": report,
    }
    every = [StepReport(step=which, path=Path(each.path), uri=each.uri) for which, each in reports.items()]
    write_run_summary(Path(summary.path), f"{name}, run {run_id}", every)
