"""The figures of a step that Kubeflow shows beside it, and draws over the runs: its Metrics."""

import math
from collections.abc import Mapping
from typing import Protocol


class Metrics(Protocol):
    """What of kfp.dsl.Metrics is used here."""

    def log_metric(self, metric: str, value: float) -> None: ...


def known(figures: Mapping[str, float | None]) -> dict[str, float]:
    """Those that are known and finite: KFP's page shows no run at all where one number is NaN."""
    return {name: float(value) for name, value in figures.items() if value is not None and math.isfinite(value)}


def log_figures(metrics: Metrics, figures: Mapping[str, float | None]) -> None:
    """Give KFP the figures that are known."""
    for name, value in known(figures).items():
        metrics.log_metric(name, value)
