"""kfp.local's output, taken apart."""

from pipelines.local.task_log import events, gist, message, reason

OUTPUT = """\
21:00:00.100 - INFO - Running pipeline: \x1b[95m'retrain'\x1b[0m
21:00:00.200 - INFO - Executing task \x1b[96m'preprocess'\x1b[0m
21:00:00.201 - INFO - Streamed logs:
    [KFP Executor 2026-12-01 21:00:01,000 INFO]: Looking for component `preprocess` in --component_module_path
    [KFP Executor 2026-12-01 21:00:01,500 INFO]: read clicks.tsv: 200 rows
    [KFP Executor 2026-12-01 21:00:02,000 INFO]: Wrote executor output file to /tmp/x.
21:00:02.100 - INFO - Task \x1b[96m'preprocess'\x1b[0m finished with status \x1b[92mSUCCESS\x1b[0m
21:00:02.200 - INFO - Executing task \x1b[96m'train'\x1b[0m
    Traceback (most recent call last):
      File "step.py", line 3, in train
    ValueError: inner
    components.errors.TrainingJobFailed: job-1: rank 1 was killed by signal 9 (SIGKILL)
21:00:03.000 - ERROR - Task \x1b[96m'train'\x1b[0m finished with status \x1b[91mFAILURE\x1b[0m
"""


def test_every_line_is_an_event_of_its_task() -> None:
    found = [(event.kind, event.task) for event in events(OUTPUT.splitlines())]
    assert found == [
        ("line", ""),
        ("started", "preprocess"),
        ("line", "preprocess"),
        ("work_begins", "preprocess"),
        ("line", "preprocess"),
        ("work_ends", "preprocess"),
        ("succeeded", "preprocess"),
        ("started", "train"),
        *[("line", "train")] * 4,
        ("failed", "train"),
    ]


def test_a_message_has_no_executors_prefix() -> None:
    line = "    [KFP Executor 2026-12-01 21:00:01,500 INFO]: read clicks.tsv: 200 rows"
    assert message(line) == "read clicks.tsv: 200 rows"


def test_the_gist_of_a_message_is_what_the_job_said_and_nothing_of_what_libraries_log() -> None:
    job = "ctrflow-train-70eafc2300772109 algo-1:"
    assert gist(f"{job} 2026-12-03 05:16:00,160 rank 0: learning rate 0.0005") == "rank 0: learning rate 0.0005"
    assert gist("read clicks.tsv: 200 rows") == "read clicks.tsv: 200 rows"
    assert gist("ctrflow-train-70ea: InProgress, Training after 5.3 s") == "ctrflow-train-70ea: InProgress, Training after 5.3 s"
    for noise in (
        f"{job} I0000 00:00:1796275764.659803   17869 port.cc:153] oneDNN",
        "WARNING: All log messages before absl",
        "}",
        "",
    ):
        assert gist(noise) == ""


def test_the_reason_is_our_own_error_before_any_other() -> None:
    assert reason(OUTPUT.splitlines()) == "job-1: rank 1 was killed by signal 9 (SIGKILL)"
    assert reason(["Traceback", "KeyError: 'a'", "    ValueError: last"]) == "ValueError: last"
    assert reason(["    [KFP Executor x]: working", "    Killed"]).startswith("its process was killed by signal 9 (SIGKILL)")
    assert reason(["nothing"]) == "it ended without an error message"
