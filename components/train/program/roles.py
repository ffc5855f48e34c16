"""Which processes a host of a job runs, and the environment of each. Nothing here starts anything.

    single            rank 0; tower and mirrored alike
    horovod           one rank a worker, under Gloo
    parameter_server  a server and a worker a host; the chief, which is rank 0, on the first host

Ports count from a base: +0 the launchers' contact, +1 Horovod's rendezvous, +10 and up by host: server, worker, chief.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from components.errors import InvalidConfig
from components.train.program.config import ONE_PROCESS, TrainConfig
from components.train.program.container import Container

RENDEZVOUS_OFFSET = 1
HOSTS_OFFSET, PORTS_A_HOST = 10, 10
# How often Horovod's ranks ask each other what is ready. Every time costs about 0.15 ms of CPU, and an exchange waits half of the
# interval; Horovod's own 1 ms took 14 to 18 % of a core from the training, 2 ms half of it (tests/benchmarks/README.md).
HOROVOD_CYCLE_MS = 2
# On one host, steps do without Horovod (exchange.py).
HOROVOD_CYCLE_ONE_HOST_MS = 20
SERVER, WORKER, CHIEF = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class Role:
    """One process. `name` is what errors call it; `main` processes end by themselves, the others serve until ended."""

    name: str
    kind: str
    main: bool
    environment: dict[str, str]


def roles(config: TrainConfig, container: Container, addresses: Mapping[str, str], port_base: int, usable: int) -> list[Role]:
    """The processes of this host.

    Raises:
        InvalidConfig: a strategy for one host on several.
    """
    threads = {"OMP_NUM_THREADS": str(config.omp_threads or max(usable // config.workers_per_host, 1))}
    if config.kmp_affinity:
        threads["KMP_AFFINITY"] = config.kmp_affinity
    if config.strategy in ONE_PROCESS:
        if len(container.hosts) > 1:
            raise InvalidConfig(f"strategy {config.strategy} on {len(container.hosts)} hosts: it uses one; set instance count 1")
        return [Role(name="rank 0", kind="rank 0", main=True, environment=threads)]
    if config.strategy == "horovod":
        return _ranks(config, container, addresses, port_base, threads)
    return _parameter_servers(container, addresses, port_base, threads)


def _ranks(
    config: TrainConfig, container: Container, addresses: Mapping[str, str], port_base: int, threads: Mapping[str, str]
) -> list[Role]:
    workers = config.workers_per_host
    found = []
    for local in range(workers):
        rank = container.host_index * workers + local
        environment = {
            **threads,
            "HOROVOD_RANK": str(rank),
            "HOROVOD_SIZE": str(workers * len(container.hosts)),
            "HOROVOD_LOCAL_RANK": str(local),
            "HOROVOD_LOCAL_SIZE": str(workers),
            "HOROVOD_CROSS_RANK": str(container.host_index),
            "HOROVOD_CROSS_SIZE": str(len(container.hosts)),
            "HOROVOD_HOSTNAME": container.current_host,
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": addresses[container.hosts[0]],
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port_base + RENDEZVOUS_OFFSET),
            "HOROVOD_GLOO_IFACE": container.network_interface,
            "HOROVOD_CYCLE_TIME": str(HOROVOD_CYCLE_MS if len(container.hosts) > 1 else HOROVOD_CYCLE_ONE_HOST_MS),
        }
        found.append(Role(name=f"rank {rank}", kind=f"rank {rank}", main=True, environment=environment))
    return found


def _parameter_servers(
    container: Container, addresses: Mapping[str, str], port_base: int, threads: Mapping[str, str]
) -> list[Role]:
    def at(index: int, kind: int) -> str:
        return f"{addresses[container.hosts[index]]}:{port_base + HOSTS_OFFSET + PORTS_A_HOST * index + kind}"

    everyone = range(len(container.hosts))
    cluster = {
        "chief": [at(0, CHIEF)],
        "worker": [at(index, WORKER) for index in everyone],
        "ps": [at(index, SERVER) for index in everyone],
    }
    # gRPC would ask the http_proxy of an office for these addresses.
    direct = {"no_grpc_proxy": ",".join(addresses[host] for host in container.hosts)}
    environment = {**threads, **direct, "TF_CONFIG": json.dumps({"cluster": cluster})}
    here = container.host_index
    found = [
        Role(name=f"parameter server {here}", kind=f"ps {here}", main=False, environment=environment),
        Role(name=f"worker {here}", kind=f"worker {here}", main=False, environment=environment),
    ]
    if here == 0:
        found.append(Role(name="chief (rank 0)", kind="rank 0", main=True, environment=environment))
    return found
