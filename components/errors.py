"""What ctrflow says when it cannot go on.

    WorkflowError
    ├── InvalidConfig       a setting, hyperparameter or argument is unknown, malformed or out of range
    ├── InvalidRecords      data is missing, damaged or not what was declared
    ├── StorageConflict     somebody else wrote in the same place first
    ├── JobFailed           a job at SageMaker was refused, or ended in any state but Completed
    │   ├── TrainingJobFailed
    │   └── ProcessingJobFailed
    ├── NotPromotable       a model or evaluation that must not reach the model store
    └── RunNotSucceeded     a run of the pipeline failed or was stopped

Every message is one line: what, where, and what to do. The command line prints it and exits 1; any other exception is a bug
and keeps its traceback.
"""

import difflib
from collections.abc import Iterable


class WorkflowError(Exception):
    """Base of all errors that a user can act on."""


class InvalidConfig(WorkflowError):
    """A setting is unknown, malformed or out of range; the message names it and its value."""


class InvalidRecords(WorkflowError):
    """Data is missing, damaged or of another format; the message names file and record or line."""


class StorageConflict(WorkflowError):
    """What was to be written depends on what somebody else has changed meanwhile; the message names the place."""


class JobFailed(WorkflowError):
    """A job at SageMaker did not complete; the message carries its own reason."""


class TrainingJobFailed(JobFailed):
    """A training job did not complete; the message carries the first failing process's own reason."""


class ProcessingJobFailed(JobFailed):
    """A processing job did not complete; the message carries what its container left as exit message."""


class NotPromotable(WorkflowError):
    """A model or its evaluation is incomplete, inconsistent or undecidable."""


class RunNotSucceeded(WorkflowError):
    """A run of the pipeline failed, was stopped, or could not be told of; the message says which."""


def hint_for(name: str, known: Iterable[str]) -> str:
    """What the writer of an unknown name may have meant, for the end of a message."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(names)}"
