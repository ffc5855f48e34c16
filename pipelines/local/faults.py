"""What goes wrong at the local endpoint on demand: the service's bad days, for whoever tests an operator; and its calls counted."""

import threading
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass

THROTTLED = ("ThrottlingException", 400, "Rate exceeded")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One call's trouble. `after`: the call took effect before it; without `code` the connection closes and no answer comes."""

    code: str
    status: int = 400
    message: str = ""
    after: bool = False


class Faults:
    """Faults that are still to come, by operation, such as CreateTrainingJob. All calls are counted, refused ones too.

    `lacking` holds the instance types without capacity: such a job fails after a while, as at the service.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.lacking: set[str] = set()
        self._coming: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self._throttled_until = 0.0
        self._lock = threading.Lock()

    def fail(self, operation: str, code: str, *, status: int = 400, message: str = "", after: bool = False, times: int = 1) -> None:
        """The next calls of an operation end with this error, `after` they took effect or instead."""
        with self._lock:
            self._coming[operation].extend([Fault(code=code, status=status, message=message, after=after)] * times)

    def lose_reply(self, operation: str) -> None:
        """The next call takes effect, and the connection closes without an answer."""
        self.fail(operation, "", after=True)

    def throttle(self, seconds: float) -> None:
        """Every call is refused as too many for so long."""
        with self._lock:
            self._throttled_until = time.monotonic() + seconds

    def next(self, operation: str) -> Fault | None:
        """Count a call, and what is to go wrong with it."""
        with self._lock:
            self.calls[operation] += 1
            if time.monotonic() < self._throttled_until:
                code, status, message = THROTTLED
                return Fault(code=code, status=status, message=message)
            return self._coming[operation].popleft() if self._coming[operation] else None
