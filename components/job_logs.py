"""The log lines of a job's hosts, forwarded as they come."""

import logging
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from components.clients import logs_client

LOG = logging.getLogger(__name__)

LOG_EVENTS_A_CALL = 1000


class JobLogs:
    """The lines of a job's hosts, forwarded as they come. Trouble with logs never fails a job."""

    def __init__(self, sagemaker: Any, name: str, group: str) -> None:
        self._client = logs_client(sagemaker)
        self._name, self._group = name, group
        self._tokens: dict[str, str | None] = {}

    def forward(self) -> None:
        """All lines that appeared since the last call, up to LOG_EVENTS_A_CALL a host and call to the service."""
        try:
            request = {"logGroupName": self._group, "logStreamNamePrefix": f"{self._name}/"}
            for stream in self._client.describe_log_streams(**request)["logStreams"]:
                self._forward_stream(stream["logStreamName"])
        except (ClientError, BotoCoreError) as error:
            LOG.debug("%s: no log lines: %s", self._name, error)

    def _forward_stream(self, stream: str) -> None:
        request: dict[str, Any] = {"logGroupName": self._group, "logStreamName": stream, "startFromHead": True}
        host = stream.rpartition("/")[2].rsplit("-", 1)[0]
        while True:
            token = self._tokens.get(stream)
            reply = self._client.get_log_events(**request, limit=LOG_EVENTS_A_CALL, **({"nextToken": token} if token else {}))
            for event in reply["events"]:
                LOG.info("%s %s: %s", self._name, host, event["message"].rstrip())
            self._tokens[stream] = reply["nextForwardToken"]
            if reply["nextForwardToken"] == token or not reply["events"]:
                return
