"""The page about one evaluation, its one-line summary, and the comparison with the champion in one sentence."""

from components.drift import SHIFTED, Drift
from components.evaluation import ChampionScore, Evaluation
from components.model_files import ModelCard
from components.reports import Page


def headline(evaluation: Evaluation) -> str:
    """The figures that matter, in one line."""
    auc = _metric(evaluation.auc, evaluation.auc_reason)
    text = f"AUC {auc}, log loss {_metric(evaluation.log_loss, evaluation.log_loss_reason)} on {evaluation.rows:,} rows"
    return f"{text}; {comparison(evaluation.champion, evaluation.confidence)}" if evaluation.champion else text


def comparison(champion: ChampionScore, confidence: float) -> str:
    """How the model and the champion compare, and how likely that is wrong, in one sentence."""
    name = f"champion version {champion.version}"
    if champion.auc_difference is None:
        return f"not compared with {name} ({champion.auc_reason or 'the model has no AUC'})"
    if champion.auc_low is None or champion.auc_high is None or champion.p_value is None:
        return f"{champion.auc_difference:+.4f} AUC to {name}, on too few rows to say how sure that is"
    if champion.auc_difference == 0.0:
        return f"as good as {name}, to the last of its pairs of rows" if champion.auc_low == 0.0 else f"as good as {name}"
    word = "better" if champion.auc_difference > 0.0 else "worse"
    half = (champion.auc_high - champion.auc_low) / 2
    p = f"p = {champion.p_value:.2g}" if champion.p_value >= 1e-4 else "p < 0.0001"
    return (
        f"{word} than {name} by {abs(champion.auc_difference):.4f} ± {half:.4f} AUC ({confidence:.0%} interval); "
        f"to say so would be wrong with {p}"
    )


def _share(negative_rate: float) -> str:
    return "all" if negative_rate == 1.0 else f"{negative_rate:.6g} of them; its probabilities are corrected for it"


def _metric(value: float | None, reason: str = "one class only") -> str:
    return f"undefined ({reason})" if value is None else f"{value:.4f}"


def _interval(value: float | None, low: float | None, high: float | None) -> str:
    if value is None:
        return ""
    return f"{value:+.5f}" if low is None or high is None else f"{value:+.5f} ({low:+.5f} to {high:+.5f})"


def evaluation_page(name: str, evaluation: Evaluation, card: ModelCard) -> Page:
    """Metrics beside the champion's, curves, calibration and scores as charts, slices, and which model on which data."""
    page = Page(f"Evaluation of {name}", headline(evaluation))
    for warning in evaluation.warnings:
        page.warning(warning)
    _metrics(page, evaluation)
    page.lines("ROC curve", "false positive rate", "true positive rate", {"this model": evaluation.roc}, diagonal=True)
    page.lines("Precision and recall", "recall", "precision", {"this model": evaluation.precision_recall})
    observed = [(part.predicted, part.observed) for part in evaluation.calibration]
    page.lines("Calibration, by tenths of the rows", "predicted click rate", "observed", {"this model": observed}, diagonal=True)
    _scores(page, evaluation)
    if evaluation.slices:
        _slices(page, evaluation)
    if evaluation.drift:
        _drift(page, evaluation.drift)
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


def _metrics(page: Page, evaluation: Evaluation) -> None:
    champion, confidence = evaluation.champion, f"{evaluation.confidence:.0%}"
    page.section("Metrics on the validation split")
    auc, loss = ["AUC", _metric(evaluation.auc, evaluation.auc_reason)], ["log loss, nats a row"]
    loss.append(_metric(evaluation.log_loss, evaluation.log_loss_reason))
    headers = ["metric", "this model", "champion: none yet", ""]
    if champion:
        headers[2:] = [f"champion version {champion.version}", f"difference ({confidence} interval)"]
        auc += [
            _metric(champion.auc, champion.auc_reason),
            _interval(champion.auc_difference, champion.auc_low, champion.auc_high),
        ]
        loss += [
            _metric(champion.log_loss, champion.auc_reason),
            _interval(champion.log_loss_difference, champion.log_loss_low, champion.log_loss_high),
        ]
    rows = [
        auc,
        loss,
        ["normalized entropy", _metric(evaluation.normalized_entropy)],
        ["average precision", _metric(evaluation.average_precision)],
        ["mean prediction / click rate", _metric(evaluation.calibration_ratio)],
        ["log loss of a constant", f"{evaluation.constant_log_loss:.4f}"],
        ["rows", f"{evaluation.rows:,}"],
        ["clicks", f"{evaluation.positives:,} ({evaluation.click_rate:.2%})"],
    ]
    page.table(headers, [row + [""] * (4 - len(row)) for row in rows])
    page.paragraph(
        "AUC is exact, by ranks over all rows. Normalized entropy is log loss over that of a constant; below 1 is better. "
        "Probabilities and click rates are those of the whole traffic, whatever share of the negative rows was trained on."
    )
    if champion:
        page.paragraph(f"This model is {comparison(champion, evaluation.confidence)}.")


def _scores(page: Page, evaluation: Evaluation) -> None:
    """The share of each class in each bin of scores: the further apart the two lines, the better."""
    bins = evaluation.score_histogram
    totals = {"clicks": max(evaluation.positives, 1), "other rows": max(evaluation.rows - evaluation.positives, 1)}
    counts = {"clicks": [part.positives for part in bins], "other rows": [part.negatives for part in bins]}
    shares = {name: [(part.low, count / totals[name]) for part, count in zip(bins, counts[name], strict=True)] for name in totals}
    page.lines("Scores", "predicted click rate, from the value shown", "share of the class", shares)


def _slices(page: Page, evaluation: Evaluation) -> None:
    page.section("By slice")
    page.table(
        ["field", "value", "rows", "clicks", "click rate", "predicted", "AUC", "log loss"],
        [
            [
                part.field,
                part.value or "all other values",
                f"{part.rows:,}",
                f"{part.positives:,}",
                f"{part.click_rate:.3%}",
                f"{part.predicted:.3%}",
                _metric(part.auc, part.auc_reason),
                f"{part.log_loss:.4f}",
            ]
            for part in evaluation.slices
        ],
    )


def _drift(page: Page, drift: Drift) -> None:
    """The day's training rows against those of the champion, the fields that changed most first."""
    page.section("Drift of the training data")
    new = drift.reason if drift.new_id_rate is None else f"{drift.new_id_rate:.3%}"
    page.table(
        ["training rows", "this model", f"champion version {drift.champion_version}"],
        [
            ["rows", f"{drift.rows:,}", f"{drift.champion_rows:,}"],
            ["click rate, of the whole traffic", f"{drift.click_rate:.3%}", f"{drift.champion_click_rate:.3%}"],
            ["ids new to the champion", new, ""],
        ],
    )
    if drift.fields:
        page.paragraph(
            f"Population stability index by field: 0 where both are alike; {len(drift.shifted)} of {len(drift.fields)} fields are "
            f"above {SHIFTED:g}, which is much."
        )
        most = sorted(drift.fields, key=lambda field: -field.psi)[:30]
        page.table(
            ["field", "stability index", "rows with a new id"],
            [[field.field, f"{field.psi:.4f}", f"{field.new_ids:.3%}"] for field in most],
        )
