"""How a job of the local endpoint ends, and how its hosts did."""

import signal
from dataclasses import dataclass

from pipelines.local.hosts import Host

REASON_CHARACTERS = 1024


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a job ends: status, phase, and the reason when it failed."""

    status: str
    secondary: str
    reason: str = ""


STOPPED = Ending(status="Stopped", secondary="Stopped")
TIMED_OUT = Ending(status="Stopped", secondary="MaxRuntimeExceeded")
WAITED_TOO_LONG = Ending(status="Stopped", secondary="MaxWaitTimeExceeded")
INTERRUPTED = Ending(status="InProgress", secondary="Interrupted")
COMPLETED = Ending(status="Completed", secondary="Completed")


def failed(reason: str) -> Ending:
    return Ending(status="Failed", secondary="Failed", reason=reason[:REASON_CHARACTERS])


NO_CAPACITY = failed(
    "CapacityError: Unable to provision requested ML compute capacity. Please retry using a different ML instance type."
)


def exit_text(host: Host, code: int, *, lacks: str = "") -> str:
    """How a host ended, for people; `lacks` is what it should have left and did not."""
    if code > 128 and code - 128 in set(signal.Signals):
        left = f" and left {lacks}" if lacks else ""
        return f"{host.name} was killed by signal {code - 128} ({signal.Signals(code - 128).name}){left}"
    lines = host.log.read_text(errors="replace").strip().splitlines()
    left = f" and {lacks}" if lacks else ""
    return f"{host.name} ended with exit code {code}{left}; its last line: {lines[-1] if lines else '(none)'}"
