"""What the service says of a job: its status, the phases that it has gone through, and when."""

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from components.job_kinds import JobKind

LOG = logging.getLogger(__name__)


class JobState:
    """Read by whoever describes the job, changed by the job's own thread and by calls that stop it, under one lock."""

    kind: ClassVar[JobKind]

    def __init__(self, request: Mapping[str, Any], arn: str) -> None:
        self.name: str = request[self.kind.name]
        self.arn, self.request = arn, request
        self.created = self.modified = time.time()
        self.status, self.secondary = "InProgress", ""
        self._started: float | None = None
        self._ended: float | None = None
        self._reason = ""
        self._transitions: list[dict[str, Any]] = []
        self._lock = threading.RLock()

    @property
    def ended(self) -> bool:
        """Whether the job is at its end: nothing runs, no log grows."""
        return self._ended is not None

    def _described(self) -> dict[str, Any]:
        """What every description says. The lock must be held."""
        description = {key: value for key, value in self.request.items() if key != "Tags"}
        description |= {
            self.kind.arn: self.arn,
            self.kind.status: self.status,
            "CreationTime": self.created,
            "LastModifiedTime": self.modified,
        }
        if self._started is not None:
            description[f"{self.kind.word}StartTime"] = self._started
            if self._ended is not None:
                description[f"{self.kind.word}EndTime"] = self._ended
        return description | ({"FailureReason": self._reason} if self._reason else {})

    def _enter(self, phase: str, message: str) -> None:
        with self._lock:
            self.modified = time.time()
            if self._transitions:
                self._transitions[-1]["EndTime"] = self.modified
            self.secondary = phase
            self._transitions.append({"Status": phase, "StartTime": self.modified, "StatusMessage": message})
            LOG.info("%s: %s", self.name, phase)

    def _go_on(self, phase: str, message: str) -> None:
        """The next phase, unless the job is already stopping."""
        with self._lock:
            if self.status == "InProgress":
                self._enter(phase, message)
