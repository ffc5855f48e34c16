"""The workers of preprocess: `components/workers.py` with the object of worker.py in each."""

from functools import partial

from components import workers
from components.preprocess.worker import Work, Worker


class Crew(workers.Crew):
    """`count` workers that do `work`."""

    def __init__(self, work: Work, count: int) -> None:
        super().__init__(partial(Worker, work=work), count)
