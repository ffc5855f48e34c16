"""Figures that KFP gets."""

from components.figures import log_figures


def test_only_known_and_finite_figures_are_given_as_floats() -> None:
    given: list[tuple[str, float]] = []

    class Metrics:
        def log_metric(self, metric: str, value: float) -> None:
            given.append((metric, value))

    log_figures(Metrics(), {"auc": 0.75, "steps": 3, "promoted": True, "usd": None, "loss": float("nan"), "rate": float("inf")})
    assert given == [("auc", 0.75), ("steps", 3.0), ("promoted", 1.0)]
    assert all(type(value) is float for _, value in given)
