"""A process whose peer died says so by its exit code, whatever its libraries call it; every other trouble is its own."""

import pytest
import tensorflow as tf

from components.errors import InvalidRecords
from components.train.program.__main__ import describe
from components.train.program.container import PEER_LOST


@pytest.mark.parametrize(
    ("error", "said"),
    [
        # What rank 0 was seen to say when rank 1 on another host was killed: first the usual text, then none.
        (
            tf.errors.UnknownError(None, None, "2 root error(s) found.\n Horovod has been shut down. This was\n"),
            "has been shut down",
        ),
        (tf.errors.UnknownError(None, None, "[[{{node dense}}]] [Op:__inference__train_722]"), "UnknownError: [[{{node dense}}]]"),
        (tf.errors.UnavailableError(None, None, "connection reset by peer"), "UnavailableError: connection reset by peer"),
        (tf.errors.AbortedError(None, None, "session reset"), "AbortedError: session reset"),
    ],
    ids=["shut-down", "no-text", "unavailable", "aborted"],
)
def test_the_loss_of_a_peer_is_not_taken_for_the_cause(error: Exception, said: str) -> None:
    reason, code = describe(raised(error), "rank 0")
    assert code == PEER_LOST
    assert reason.startswith("rank 0: ")
    assert said in reason
    assert len(reason.splitlines()) == 1


@pytest.mark.parametrize("error", [InvalidRecords("day1, record 3: damaged"), ValueError("shapes differ"), MemoryError()])
def test_trouble_of_its_own_is_the_cause(error: Exception) -> None:
    reason, code = describe(raised(error), "rank 0")
    assert code == 1
    assert str(error) in reason


def raised(error: Exception) -> Exception:
    """The error with a place where it was raised."""
    try:
        raise error
    except type(error) as caught:
        return caught
