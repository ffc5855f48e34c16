"""CloudWatch Logs as far as the operator follows a job with it: streams and events, straight from the hosts' log files."""

from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.local.hosts import Host
from pipelines.local.jobs import Job

MAX_EVENTS = 10_000
MAX_BYTES = 1_000_000


def _stream_name(job: Job, host: Host) -> str:
    return f"{job.name}/{host.name}-{int(job.created) + host.generation}"


def describe_log_streams(jobs: Iterable[Job], request: Mapping[str, Any]) -> dict[str, Any]:
    """The streams of hosts that have a log by now, oldest job first."""
    prefix = request.get("logStreamNamePrefix", "")
    streams = [
        {"logStreamName": _stream_name(job, host), "creationTime": int(job.created * 1000)}
        for job in jobs
        for host in job.all_hosts()
        if host.log.exists() and _stream_name(job, host).startswith(prefix)
    ]
    first = int(request.get("nextToken", "0"))
    last = first + request.get("limit", 50)
    return {"logStreams": streams[first:last], **({"nextToken": str(last)} if last < len(streams) else {})}


def get_log_events(jobs: Iterable[Job], request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Whole lines from a token on, from the head without one; None when there is no such stream.

    A token is a byte offset. At the end of the stream the same token comes back, as CloudWatch does it.
    """
    found = next(
        ((job, host) for job in jobs for host in job.all_hosts() if _stream_name(job, host) == request["logStreamName"]), None
    )
    if found is None or not found[1].log.exists():
        return None
    job, host = found
    ended = job.ended  # asked before reading: after it no byte is added
    offset = int(request.get("nextToken", "f/0").removeprefix("f/"))
    with host.log.open("rb") as file:
        file.seek(offset)
        chunk = file.read(MAX_BYTES)
    whole = len(chunk) if (ended or len(chunk) == MAX_BYTES) else chunk.rfind(b"\n") + 1
    lines = chunk[:whole].splitlines(keepends=True)[: request.get("limit", MAX_EVENTS)]
    milliseconds = int(host.log.stat().st_mtime * 1000)
    events = [
        {"timestamp": milliseconds, "ingestionTime": milliseconds, "message": line.decode(errors="replace").rstrip("\r\n")}
        for line in lines
    ]
    forward = f"f/{offset + sum(len(line) for line in lines)}"
    return {"events": events, "nextForwardToken": forward, "nextBackwardToken": f"b/{offset}"}
