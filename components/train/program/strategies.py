"""The strategies by name. A module of one is imported only when it is used: Horovod's is not in every container."""

from typing import Any

from components.train.program.config import TrainConfig
from components.train.program.input import Source
from components.train.program.model import Model


def make_strategy(config: TrainConfig, source: Source, model: Model) -> Any:
    """The strategy of this job, whose modules are imported only when they are used."""
    if config.strategy == "parameter_server":
        from components.train.program.parameter_server import ParameterServers

        return ParameterServers(config, source, model)
    if config.strategy == "horovod":
        import horovod.tensorflow as hvd

        from components.train.program.horovod_ring import HorovodRing

        hvd.init()
        return HorovodRing(config, source, model)
    if config.strategy == "tower":
        from components.train.program.tower import Tower

        return Tower(config, source, model)
    if config.strategy == "mirrored":
        from components.train.program.mirrored import Mirrored

        return Mirrored(config, source, model)
    from components.train.program.single import Single

    return Single(config, source, model)
