"""One line of contact between the launchers of a job: who failed and why, and that the job is done.

The first host listens, the others connect. Messages are JSON lines: {"failed": reason} either way, {"done": true} from the first
host. A connection that ends without a message means that the host behind it is lost.
"""

import json
import logging
import socket
import threading
import time
from collections.abc import Mapping

log = logging.getLogger(__name__)

CONNECT_DEADLINE_S = 300.0


class Peers:
    """The other hosts of the job, as seen from this one."""

    def __init__(self, hosts: tuple[str, ...], current: str, addresses: Mapping[str, str], port: int) -> None:
        self._others = [host for host in hosts if host != current]
        self._current, self._port = current, port
        self._addresses = addresses
        self._first = hosts[0]
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._done = self._leaving = False
        self._failure: str | None = None
        self._server: socket.socket | None = None
        if not self._others:
            return
        if current == self._first:
            self._server = socket.create_server((addresses[current], port), backlog=len(hosts))
            work = self._accept
        else:
            work = self._connect
        threading.Thread(target=work, name="peers", daemon=True).start()

    def failure(self) -> str | None:
        """The reason that another host gave, or that it is lost."""
        with self._lock:
            return self._failure

    def done(self) -> bool:
        """Whether the first host said that the job is complete."""
        with self._lock:
            return self._done

    def _fail(self, reason: str) -> None:
        with self._lock:
            if not self._leaving and not self._done and self._failure is None:
                self._failure = reason

    def _accept(self) -> None:
        assert self._server is not None
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                self._connections.append(connection)
            threading.Thread(target=self._listen, args=(connection,), name="peer", daemon=True).start()

    def _connect(self) -> None:
        address, deadline = (self._addresses[self._first], self._port), time.monotonic() + CONNECT_DEADLINE_S
        while True:
            try:
                connection = socket.create_connection(address, timeout=5.0, source_address=(self._addresses[self._current], 0))
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    return self._fail(f"{self._current}: no contact with {self._first} at {address[0]}:{address[1]} ({error})")
                time.sleep(0.2)
        connection.settimeout(None)
        with self._lock:
            self._connections.append(connection)
        connection.sendall(json.dumps({"host": self._current}).encode() + b"\n")
        self._listen(connection)

    def _listen(self, connection: socket.socket) -> None:
        host = self._first if self._current != self._first else "a host"
        try:
            with connection.makefile("rb") as lines:
                for line in lines:
                    message = json.loads(line)
                    host = message.get("host", host)
                    if "failed" in message:
                        return self._fail(message["failed"])
                    if message.get("done"):
                        with self._lock:
                            self._done = True
                        return
                    if message.get("left"):
                        return
        except (OSError, ValueError) as error:
            log.info("contact with %s ended: %s", host, error)
        self._fail(f"{host}: lost contact with its launcher")

    def tell(self, message: Mapping[str, object]) -> None:
        """Say a last word to all connected hosts, and close."""
        with self._lock:
            self._leaving = True
            connections = list(self._connections)
        for connection in connections:
            try:
                connection.sendall(json.dumps(message).encode() + b"\n")
                connection.shutdown(socket.SHUT_WR)
            except OSError as error:
                log.info("a host could not be told %s: %s", message, error)
        if self._server is not None:
            self._server.close()
