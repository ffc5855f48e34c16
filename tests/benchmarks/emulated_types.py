"""Instance types of this machine's cores: the local endpoint binds each host of a job to as many as its type has vCPUs."""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

from components.errors import InvalidConfig
from components.instances import Instance
from pipelines.local import sagemaker
from pipelines.local.hosts import Host, Program
from pipelines.local.training_jobs import TrainingJob


class EmulatedTrainingJob(TrainingJob):
    """A training job whose hosts are of an emulated type, each on cores of its own as far as there are some left."""

    vcpus: ClassVar[dict[str, int]] = {}

    def _program(self, host: Host) -> Program:
        program, cores = super()._program(host), sorted(os.sched_getaffinity(0))
        count = self.vcpus[self.cluster(self.request)["InstanceType"]]
        own = [cores[(host.index * count + number) % len(cores)] for number in range(count)]
        python, *rest = program.command
        if python != "python3":
            raise ValueError(f"{python}: a command of python3 is expected")
        return replace(program, command=["taskset", "--cpu-list", ",".join(map(str, own)), sys.executable, *rest])


@contextmanager
def emulated(types: Sequence[Instance]) -> Iterator[None]:
    """Endpoints that are started in the block have these types and no others.

    Raises:
        InvalidConfig: a type has more vCPUs than this process.
    """
    most = len(os.sched_getaffinity(0))
    if too_large := [each.name for each in types if each.vcpus > most]:
        raise InvalidConfig(f"{', '.join(too_large)}: more vCPUs than the {most} that this process has")
    EmulatedTrainingJob.vcpus = {each.name: each.vcpus for each in types}
    before = sagemaker.KINDS
    sagemaker.KINDS = tuple(EmulatedTrainingJob if each is TrainingJob else each for each in before)
    try:
        yield
    finally:
        sagemaker.KINDS = before
