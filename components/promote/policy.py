"""The gate's policy: what a model must prove, declared once for all nights."""

import math
from dataclasses import dataclass
from typing import Literal

from components.documents import settings_of_text
from components.errors import InvalidConfig


@dataclass(frozen=True, kw_only=True)
class Policy:
    """All but the margin in AUC, which is a setting of its own.

    minimum_rows: rows of the validation split, below which nothing is decided.
    minimum_lift: share by which log loss must be below that of always saying the click rate.
    confidence: one minus the chance that a model passes which truly is worse than the champion by the margin.
    calibration_low, calibration_high: bounds of mean prediction over click rate.
    most_new_ids: share of the training rows' ids that the champion never saw; most_shifted: share of fields whose population
    stability index is above 0.25. 1 asks for nothing.
    one_row_ms, thousand_rows_ms: what the SavedModel may take for a call, the median on the machine of this step.
    size_gb: of all files of the model, 10^9 bytes.
    registry_group: model package group of SageMaker's registry that promoted models are mirrored to; empty for none.
    registry_approval: the state in which they arrive there.
    """

    minimum_rows: int = 100
    minimum_lift: float = 0.0
    confidence: float = 0.95
    calibration_low: float = 0.8
    calibration_high: float = 1.25
    most_new_ids: float = 1.0
    most_shifted: float = 1.0
    one_row_ms: float = 100.0
    thousand_rows_ms: float = 1000.0
    size_gb: float = 50.0
    registry_group: str = ""
    registry_approval: Literal["PendingManualApproval", "Approved"] = "PendingManualApproval"

    def __post_init__(self) -> None:
        for name, value, fits, expected in (
            ("minimum_rows", self.minimum_rows, self.minimum_rows >= 1, "at least 1"),
            ("minimum_lift", self.minimum_lift, 0.0 <= self.minimum_lift < 1.0, "a share in 0..1"),
            ("confidence", self.confidence, 0.5 <= self.confidence < 1.0, "at least 0.5 and below 1, such as 0.95"),
            ("calibration_low", self.calibration_low, 0.0 <= self.calibration_low <= 1.0, "0..1"),
            ("calibration_high", self.calibration_high, 1.0 <= self.calibration_high < math.inf, "1 or more"),
            ("most_new_ids", self.most_new_ids, 0.0 <= self.most_new_ids <= 1.0, "a share in 0..1"),
            ("most_shifted", self.most_shifted, 0.0 <= self.most_shifted <= 1.0, "a share in 0..1"),
            ("one_row_ms", self.one_row_ms, 0.0 < self.one_row_ms < math.inf, "more than 0"),
            ("thousand_rows_ms", self.thousand_rows_ms, 0.0 < self.thousand_rows_ms < math.inf, "more than 0"),
            ("size_gb", self.size_gb, 0.0 < self.size_gb < math.inf, "more than 0"),
        ):
            if not fits:
                raise InvalidConfig(f"policy: {name} {value}: {expected} is expected")
        if self.registry_approval not in ("PendingManualApproval", "Approved"):
            raise InvalidConfig(
                f"policy: registry_approval {self.registry_approval!r}: PendingManualApproval or Approved is expected"
            )


def policy_of(text: str) -> Policy:
    """A policy from a JSON object of its fields; what is left out has its default. An empty text leaves all out.

    Raises:
        InvalidConfig: not JSON, an unknown key, or a value that makes no sense.
    """
    return settings_of_text(Policy, text, "policy", '{"minimum_rows": 10000}')
