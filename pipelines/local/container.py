"""The stand-in for a container: runs one command, and leaves no process of it behind.

Run as a script, in a session of its own, with a pipe as standard input that its owner holds open:

    python container.py COMMAND...

- SIGTERM goes to the command alone, as the first process of a container gets it.
- When the command ends, whatever it started and left is killed; the exit code is the command's, 128 + N for signal N.
- When the pipe closes (the owner asks for it, or is gone, even by kill -9), everything is killed at once.

Standard library only, and few imports: it starts once for each host of each job. Linux only (prctl, /proc).
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # orphans below become our children, whatever session they moved to; prctl(2)
NOT_FOUND = 127  # the exit code of shells
CPUS = "CTRFLOW_HOST_CPUS"  # numbers of the CPUs that the command may use, such as 0,1


def kill_descendants() -> None:
    """Kill and reap children until none is left; those of a killed child become ours in turn."""
    while True:
        for listing in Path("/proc/self/task").glob("*/children"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                for pid in listing.read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            return


def end_when_abandoned() -> None:
    """Wait for the other end of standard input to close, then kill everything, this process last."""
    while os.read(0, 1024):
        pass
    kill_descendants()
    os._exit(128 + signal.SIGKILL)


def main(command: list[str]) -> int:
    """Run the command to its end and clean up after it. Returns its exit code."""
    if cpus := os.environ.get(CPUS):
        os.sched_setaffinity(0, [int(cpu) for cpu in cpus.split(",")])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # SIGTERM waits until there is someone to forward it to.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.signal(signal.SIGINT, lambda *_: None)  # a handler, because the command would inherit SIG_IGN
    threading.Thread(target=end_when_abandoned, daemon=True).start()
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_let_sigterm_in)
    except OSError as error:
        print(f"{command[0]}: cannot be started: {error.strerror}", file=sys.stderr)
        return NOT_FOUND

    def forward(signum: int, frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signum)

    signal.signal(signal.SIGTERM, forward)
    _let_sigterm_in()
    try:
        # Not reaped yet: its id must not become another's while SIGTERM is forwarded.
        outcome = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:  # reaped by the thread that is about to end this process
        signal.pause()
    assert outcome is not None
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    kill_descendants()
    return outcome.si_status if outcome.si_code == os.CLD_EXITED else 128 + outcome.si_status


def _let_sigterm_in() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
