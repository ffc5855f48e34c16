"""A worker as a program of its own: `python -m components.preprocess.process FD`.

Messages come through the socket FD as (method, argument) and are answered with whether it worked, and what the method returned or
raised. A process whose parent is gone reads the end of the socket and ends.
"""

import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection

from components.preprocess.worker import Worker


def serve(connection: Connection) -> None:
    """Answer messages until the other side is gone. The first one is the work and the number of this worker."""
    work, number = connection.recv()
    worker = Worker(work=work, number=number)
    while True:
        method, argument = connection.recv()
        try:
            connection.send((True, getattr(worker, method)(argument)))
        except Exception as error:
            # The place where it was raised does not travel by itself.
            error.add_note(traceback.format_exc())
            connection.send((False, error))


if __name__ == "__main__":
    with suppress(EOFError, ConnectionError):
        serve(Connection(int(sys.argv[1])))
