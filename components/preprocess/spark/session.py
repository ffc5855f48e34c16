"""A Spark session for one run, with what our Python workers need, and the run."""

import importlib.util
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from components.errors import InvalidConfig
from components.manifest import Manifest
from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Its workers are started like those of a real cluster, by scripts that look for this, which pip's distribution does not say.
_SCALA = {"3": "2.12", "4": "2.13"}


@contextmanager
def spark_session(master: str) -> Iterator["SparkSession"]:
    """A session that ends with the block.

    Args:
        master: a URL such as local[4], spark://host:7077 or yarn; empty for what spark-submit or Spark's own settings say.
    Raises:
        InvalidConfig: no pyspark, no Java, or no such master.
    """
    # Of this process: pyspark puts its own, which would answer a Ctrl-C in another way than a SIGTERM.
    interrupt = signal.getsignal(signal.SIGINT)
    if importlib.util.find_spec("pyspark") is None:
        raise InvalidConfig(
            "pyspark is not installed; pip install -c requirements.lock -c requirements-spark.lock -e '.[spark]', or leave out "
            "--engine spark"
        )
    import pyspark
    from pyspark.sql import SparkSession

    from components.preprocess.spark.failures import FAILURES, said

    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_SCALA_VERSION", _SCALA[pyspark.__version__.partition(".")[0]])
    # What it logs, with tracebacks, is what it raises.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # Spark's own bar stands on the line that says what failed; how far it is, progress.py says.
    builder = SparkSession.builder.appName("ctrflow preprocess").config("spark.ui.showConsoleProgress", "false")
    try:
        session = (builder.master(master) if master else builder).getOrCreate()
    except FileNotFoundError as error:
        raise InvalidConfig(f"Spark does not start ({error}); it needs Java 17, found by JAVA_HOME or PATH") from error
    except FAILURES as error:
        raise InvalidConfig(
            f"Spark does not start ({said(error)}); it needs Java 17, found by JAVA_HOME or PATH, and a master that is there"
        ) from error
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
        session.sparkContext.setLogLevel("ERROR")
        yield session
    finally:
        # Java that is gone has ended all there was.
        with suppress(*FAILURES):
            session.stop()


def preprocess_on_spark(
    config: PreprocessConfig, inputs: Sequence[str], out: Path, report: Path, master: str, *, own_disks: bool = False
) -> Manifest:
    """What `step.preprocess` does, on Spark; `master` as above.

    Args:
        own_disks: hosts share no disk. Each has the inputs at the same paths, and keeps its shards where the driver has the folder
            that becomes `out` at the end; `in_container.gather_shards` does on the others what that renaming does on the driver's.
    Raises:
        InvalidConfig: Spark does not start.
        WorkflowError: Spark failed.
        InvalidRecords: as `step.preprocess` says.
    """
    with spark_session(master) as session:
        # Only now is it known that there is a pyspark to import.
        from components.preprocess.spark.engine import on_spark

        return preprocess(config, inputs, out, report, open_engine=partial(on_spark, session, own_disks))
