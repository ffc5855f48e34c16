"""The page about one evaluation, and its one-line summary."""

from components.evaluation import Evaluation
from components.model_files import ModelCard
from components.reports import Page


def headline(evaluation: Evaluation) -> str:
    """The figures that matter, in one line."""
    auc = _metric(evaluation.auc, evaluation.auc_reason)
    text = f"AUC {auc}, log loss {_metric(evaluation.log_loss, evaluation.log_loss_reason)} on {evaluation.rows:,} rows"
    if evaluation.champion:
        champion = evaluation.champion
        text += f"; champion version {champion.version}: AUC {_metric(champion.auc, champion.auc_reason)}"
    return text


def _share(negative_rate: float) -> str:
    return "all" if negative_rate == 1.0 else f"{negative_rate:.6g} of them; its probabilities are corrected for it"


def _metric(value: float | None, reason: str) -> str:
    return f"undefined ({reason})" if value is None else f"{value:.4f}"


def evaluation_page(name: str, evaluation: Evaluation, card: ModelCard) -> Page:
    """Metrics beside the champion's, ROC and calibration charts, and which model on which data."""
    page = Page(f"Evaluation of {name}", headline(evaluation))
    for warning in evaluation.warnings:
        page.warning(warning)
    page.section("Metrics on the validation split")
    champion = evaluation.champion
    page.table(
        ["metric", "this model", f"champion version {champion.version}" if champion else "champion: none yet"],
        [
            ["AUC", _metric(evaluation.auc, evaluation.auc_reason), _metric(champion.auc, champion.auc_reason) if champion else ""],
            [
                "log loss, nats a row",
                _metric(evaluation.log_loss, evaluation.log_loss_reason),
                _metric(champion.log_loss, champion.auc_reason) if champion else "",
            ],
            ["normalized entropy", _metric(evaluation.normalized_entropy, "one class only"), ""],
            ["log loss of a constant", f"{evaluation.constant_log_loss:.4f}", ""],
            ["rows", f"{evaluation.rows:,}", ""],
            ["clicks", f"{evaluation.positives:,} ({evaluation.click_rate:.2%})", ""],
        ],
    )
    page.paragraph(
        "AUC is exact, by ranks over all rows. Normalized entropy is log loss over that of a constant; below 1 is better."
    )
    page.lines("ROC curve", "false positive rate", "true positive rate", {"this model": evaluation.roc}, diagonal=True)
    observed = [(part.predicted, part.observed) for part in evaluation.calibration]
    page.lines("Calibration, by tenths of the rows", "predicted click rate", "observed", {"this model": observed}, diagonal=True)
    page.section("The model")
    page.table(
        ["what", "value"],
        [
            ["strategy", f"{card.strategy}, {card.world_size} workers"],
            ["training steps", f"{card.step:,}"],
            ["training examples", f"{card.examples:,}"],
            ["negative rows it was trained on", _share(card.negative_sampling_rate)],
            ["model digest", evaluation.model_digest],
            ["data digest", evaluation.data_digest],
        ],
    )
    return page
