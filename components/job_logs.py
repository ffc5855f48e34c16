"""The log lines of a job's hosts, forwarded as they come."""

import logging
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from components.clients import logs_client

LOG = logging.getLogger(__name__)

LOG_EVENTS_A_CALL = 1000
# Of one host between two looks at the job: a program that floods its log does not keep the operator from following the job. What is
# left comes with the next looks, and all of it at the end.
CALLS_A_LOOK = 5


class JobLogs:
    """The lines of a job's hosts, forwarded as they come. Trouble with logs never fails a job."""

    def __init__(self, sagemaker: Any, name: str, group: str) -> None:
        self._client = logs_client(sagemaker)
        self._name, self._group = name, group
        self._tokens: dict[str, str | None] = {}

    def forward(self, *, to_the_end: bool) -> None:
        """The lines that appeared since the last call, each with its host; the line itself says which rank it is of.

        Args:
            to_the_end: all of them, else up to CALLS_A_LOOK times LOG_EVENTS_A_CALL a host.
        """
        try:
            for stream in self._streams():
                self._forward_stream(stream, to_the_end)
        except (ClientError, BotoCoreError) as error:
            LOG.debug("%s: no log lines: %s", self._name, error)

    def _streams(self) -> list[str]:
        """One for each host, and more after an interruption: machines that come instead have streams of their own."""
        request: dict[str, Any] = {"logGroupName": self._group, "logStreamNamePrefix": f"{self._name}/"}
        pages = self._client.get_paginator("describe_log_streams").paginate(**request)
        return [stream["logStreamName"] for page in pages for stream in page["logStreams"]]

    def _forward_stream(self, stream: str, to_the_end: bool) -> None:
        request: dict[str, Any] = {"logGroupName": self._group, "logStreamName": stream, "startFromHead": True}
        host = stream.rpartition("/")[2].rsplit("-", 1)[0]
        calls = 0
        while to_the_end or calls < CALLS_A_LOOK:
            calls += 1
            token = self._tokens.get(stream)
            reply = self._client.get_log_events(**request, limit=LOG_EVENTS_A_CALL, **({"nextToken": token} if token else {}))
            for event in reply["events"]:
                LOG.info("%s %s: %s", self._name, host, event["message"].rstrip())
            self._tokens[stream] = reply["nextForwardToken"]
            if reply["nextForwardToken"] == token or not reply["events"]:
                return
