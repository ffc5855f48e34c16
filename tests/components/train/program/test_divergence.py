"""A training that diverged says what most likely made it so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.errors import WorkflowError
from components.train.program.config import TrainConfig
from components.train.program.divergence import likely_cause
from components.train.program.division import Division, Share
from components.train.program.fit import Recorder, fit


def batch(*values: float) -> tuple[Any, Any, Any]:
    rows = np.array([values], np.float32)
    return np.zeros(1, np.float32), np.zeros(rows.shape, np.int32), rows


DEFAULT = "lower learning_rate 0.0005; or let it rise over some warmup_steps; or set batch_norm"


@pytest.mark.parametrize(
    ("settings", "batches", "begins"),
    [
        ({}, [batch(0.5, -1.0)], DEFAULT),
        ({}, [], DEFAULT),
        ({}, [batch(0.5, 1.0), batch(-250.0, 3.0)], "values of the last batches go up to 250, bring them near 1"),
        ({}, [batch(np.nan, np.inf), batch(1e6, 1.0)], "2 values of the last batches are not finite, repair the data; or lower"),
    ],
)
def test_the_most_telling_cause_comes_first(settings: dict[str, Any], batches: list[Any], begins: str) -> None:
    assert likely_cause(TrainConfig(**settings), batches).startswith(begins)


def test_what_is_set_already_is_not_advised() -> None:
    config = TrainConfig(warmup_steps=10, batch_norm=True, learning_rate=2.0)
    assert likely_cause(config, [batch(1.0)]) == "lower learning_rate 2"


class DivergesAtTwo:
    """A strategy whose second loss is no number."""

    rank, size, communication_s = 0, 1, 0.0

    def __init__(self) -> None:
        self._losses = iter([0.5, float("nan")])

    def train(self, batch: Any) -> float:
        return next(self._losses)

    def stop_together(self, wish: bool) -> bool:
        return wish


def test_the_batch_before_the_loss_is_looked_at_too(tmp_path: Path) -> None:
    config = TrainConfig(batch_size=1)
    share = Share(place="here", shards=(0,), rows=9, readers=1, index=0)
    division = Division(rank=0, size=1, batch_size=1, steps=9, steps_per_epoch=9, used=9, left_out=0, repeated=0, shares=(share,))
    recorder, strategy = Recorder(config, division, 0, 0.0, tmp_path / "progress"), DivergesAtTwo()
    with pytest.raises(WorkflowError) as caught:
        # The first batch broke the weights; the second, whose loss shows it, is innocent.
        fit(strategy, iter([batch(5000.0), batch(1.0)]), config, recorder, probe="none", begun=0, steps=9, save=print)  # type: ignore[arg-type]
    assert str(caught.value).startswith("step 2: the loss is nan; training diverged: values of the last batches go up to 5000")
