"""A worker as a program of its own: `python -m components.worker_process FD`.

Messages come through the socket FD as (method, argument) and are answered with whether it worked, and what the method returned or
raised. A process whose parent is gone reads the end of the socket and ends.
"""

import pickle
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from components.workers import keep_freed_memory


def serve(connection: Connection) -> None:
    """Answer messages until the other side is gone. The first one says how to make this worker's object, and its number."""
    make, number = connection.recv()
    worker = make(number=number)
    while True:
        message = connection.recv_bytes()
        try:
            # A part of the work, too: a chunk is read from its file here (chunks.py).
            method, argument = pickle.loads(message)
            connection.send((True, getattr(worker, method)(argument)))
        except Exception as error:
            # The place where it was raised does not travel by itself.
            error.add_note(traceback.format_exc())
            connection.send((False, error))


if __name__ == "__main__":
    keep_freed_memory()
    with suppress(EOFError, ConnectionError):
        serve(Connection(int(sys.argv[1])))
