"""HTTP of the local endpoint: calls in, answers, errors and faults out, in the shapes of AWS."""

import json
import logging
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pipelines.local.faults import Faults

LOG = logging.getLogger(__name__)


class ServiceError(Exception):
    """An error of the API: its code and message go to the client with HTTP status 400."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Server(ThreadingHTTPServer):
    """`answer` carries out one call, of an X-Amz-Target and a body; `faults` come before it."""

    daemon_threads = True
    answer: Callable[[str, bytes], dict[str, Any]]
    faults: Faults

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed takes no answer; anything else is a bug here and is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """JSON 1.1 over HTTP."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # header and body are two writes; without this each answer takes 40 ms
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        started, target = time.monotonic(), self.headers.get("X-Amz-Target", "")
        fault = self.server.faults.next(target.partition(".")[2])
        try:
            status, reply = 200, self.server.answer(target, body) if fault is None or fault.after else {}
        except ServiceError as error:
            status, reply = 400, {"__type": error.code, "message": error.message}
        except Exception as error:
            LOG.exception("the local endpoint itself failed")
            status, reply = 500, {"__type": "InternalFailure", "message": f"{type(error).__name__}: {error}"}
        if fault is not None:
            if not fault.code:
                self.close_connection = True
                return
            status, reply = fault.status, {"__type": fault.code, "message": fault.message}
        content = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        LOG.debug("%s: %d in %.1f ms", self.headers.get("X-Amz-Target"), status, 1000 * (time.monotonic() - started))

    def log_message(self, format: str, *args: object) -> None:
        """Calls are logged above, in our own log."""
