"""What goes wrong inside Spark, as one line: a task that fails again and again, lost hosts, a full disk, Java that ended."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from components.errors import WorkflowError

# What a call raises when Spark fails; where Java is gone, its socket refuses, too.
FAILURES = (Py4JError, PySparkException, ConnectionError)
_TRACEBACK = "Traceback (most recent call last):\n"


def cause(text: str) -> str:
    """The line that says what was wrong, of what Spark makes of it: a Python traceback within a Java one, or the latter alone."""
    if _TRACEBACK in text:
        found = re.findall(r"^\S.*", text.rpartition(_TRACEBACK)[2], re.MULTILINE)
    else:
        found = [line for line in text.splitlines() if line.strip() and not line.startswith("An error occurred while calling")]
    line = str(found[0] if found else text).strip().removeprefix(":").strip()
    return line.rpartition("most recent failure: ")[2]


def said(error: Exception) -> str:
    """The same, of an exception."""
    if isinstance(error, Py4JJavaError | PySparkException):
        return cause(str(error))
    return "its Java process is gone; if memory was short, give it more (spark.driver.memory)"


@contextmanager
def failures_in_one_line() -> Iterator[None]:
    """Spark has logged the whole of it.

    Raises:
        WorkflowError: whatever Spark could not do in the block.
    """
    try:
        yield
    except FAILURES as error:
        raise WorkflowError(f"Spark failed: {said(error)}; nothing was written, Spark's log has more") from error
