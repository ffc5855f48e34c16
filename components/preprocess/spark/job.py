"""preprocess as a Spark application: what spark-submit, or the command of AWS's Spark container, starts.

    spark-submit components/preprocess/spark/job.py --settings settings.json OUT INPUT [INPUT ...]

The settings are those of PreprocessConfig as JSON (settings.py), in a file, because no shell on the way understands a text. Folders
and files are seen by all hosts. It ends as `ctrflow preprocess` does: what is wrong is one line, and the exit code is 1.
"""

import argparse
import logging
import sys
from pathlib import Path

from components.errors import InvalidConfig, WorkflowError
from components.preprocess.settings import read_settings
from components.preprocess.spark.session import preprocess_on_spark
from components.termination import sigterm_as_exit


def run(settings: Path, inputs: list[str], out: Path, report: Path, master: str) -> None:
    """Write the dataset.

    Raises:
        WorkflowError: one line about what is wrong.
    """
    try:
        text = settings.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"--settings {settings}: cannot be read ({error})") from error
    preprocess_on_spark(read_settings(text), inputs, out, report, master)


def main() -> int:
    parser = argparse.ArgumentParser(description="Turn raw click logs into a dataset on Spark.")
    parser.add_argument("out", type=Path, help="folder of the dataset")
    parser.add_argument("inputs", nargs="+", help="files, folders or globs")
    parser.add_argument("--settings", type=Path, required=True, help="JSON file of PreprocessConfig")
    parser.add_argument("--report", type=Path, help="HTML file; OUT.html when it is not given")
    parser.add_argument("--master", default="", help="of Spark; only where it is not started by spark-submit")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    report = given.report or given.out.with_name(f"{given.out.name}.html")
    try:
        with sigterm_as_exit():
            run(given.settings, given.inputs, given.out, report, given.master)
    except WorkflowError as error:
        print(f"ctrflow: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
