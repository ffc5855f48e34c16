"""Runs a compiled pipeline in kfp.local, in this process: `python -m pipelines.local.execute PIPELINE.yaml PARAMETERS.json ROOT`.

run.py starts it in a process group of its own. KFP starts each step as a shell with a Python in it, and ends neither on SIGTERM;
so this process ends its whole group when it is asked to end, and when the process that started it is gone.
"""

import ctypes
import json
import os
import signal
import sys
from types import FrameType

import yaml

PR_SET_PDEATHSIG = 1


def end_group(number: int, frame: FrameType | None) -> None:
    """SIGTERM to the steps, which stop their training jobs; then be killed with what is left of them."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.alarm(3)


def without_retries(text: str) -> str:
    """A compiled pipeline whose steps are tried once.

    Retries are for pods that were lost, and wait minutes; here a step that failed would only find its failed job again.
    """
    spec, *platforms = yaml.safe_load_all(text)
    for part in (spec["root"], *spec["components"].values()):
        for task in part.get("dag", {}).get("tasks", {}).values():
            task.pop("retryPolicy", None)
    once: str = yaml.safe_dump_all([spec, *platforms], sort_keys=False)
    return once


def main() -> None:
    pipeline, parameters, root = sys.argv[1:]
    signal.signal(signal.SIGTERM, end_group)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    from kfp import components, local
    from kfp.local import subprocess_task_handler

    # KFP writes its interpreter's path over every "python3" of a step's command: also within paths of data, and unquoted into a
    # shell's text. Here the command stays as it is, and this interpreter is the first python3 on the path.
    subprocess_task_handler.replace_python_executable = lambda command, interpreter: command
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=root)
    with open(pipeline, encoding="utf-8") as file:
        retrain = components.load_component_from_text(without_retries(file.read()))
    with open(parameters, encoding="utf-8") as file:
        retrain(**json.load(file))


if __name__ == "__main__":
    main()
