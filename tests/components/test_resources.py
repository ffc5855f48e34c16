"""CPUs and memory that a container really has, from fake cgroup trees of both versions."""

import json
from pathlib import Path

import pytest

from components.resources import UsableCpus, UsableMemory, physical_cores, usable_cpus, usable_memory
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.roles import roles

CASE = Path(__file__).parents[3] / "shared" / "cases" / "22-cpu-quota"
GB = 2**30


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("files", "affinity", "expected"),
    [
        ({"cpu.max": "200000 100000\n"}, 16, UsableCpus(2, "cgroup v2 quota of 2")),
        ({"cpu.max": "150000 100000\n"}, 16, UsableCpus(1, "cgroup v2 quota of 1.5")),
        ({"cpu.max": "50000 100000\n"}, 16, UsableCpus(1, "cgroup v2 quota of 0.5")),
        ({"cpu.max": "max 100000\n"}, 16, UsableCpus(16, "affinity mask")),
        ({"cpu.max": "6400000 100000\n"}, 3, UsableCpus(3, "affinity mask")),
        (
            {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            16,
            UsableCpus(4, "cgroup v1 quota of 4"),
        ),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 5, UsableCpus(5, "affinity mask")),
        ({"cpu.max": "garbage\n"}, 3, UsableCpus(3, "affinity mask; an unreadable cgroup quota (ValueError), taken as none")),
        ({}, 16, UsableCpus(16, "affinity mask")),
    ],
)
def test_cpus_are_the_smallest_of_quota_affinity_and_host(
    tmp_path: Path, files: dict[str, str], affinity: int, expected: UsableCpus
) -> None:
    assert usable_cpus(tree(tmp_path, files), host=16, affinity=affinity) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"memory.max": f"{8 * GB}\n"}, UsableMemory(8 * GB, "cgroup v2 limit")),
        ({"memory.max": "max\n"}, UsableMemory(32 * GB, "host")),
        ({"memory.max": f"{64 * GB}\n"}, UsableMemory(32 * GB, "host")),
        ({"memory/memory.limit_in_bytes": f"{4 * GB}\n"}, UsableMemory(4 * GB, "cgroup v1 limit")),
        # What version 1 says without a limit.
        ({"memory/memory.limit_in_bytes": "9223372036854771712\n"}, UsableMemory(32 * GB, "host")),
        (
            {"memory.max": "garbage\n"},
            UsableMemory(32 * GB, "host; an unreadable cgroup memory limit (ValueError), taken as none"),
        ),
        ({}, UsableMemory(32 * GB, "host")),
    ],
)
def test_memory_is_the_smaller_of_limit_and_host(tmp_path: Path, files: dict[str, str], expected: UsableMemory) -> None:
    assert usable_memory(tree(tmp_path, files), host=32 * GB) == expected


@pytest.mark.skipif(not CASE.is_dir(), reason="../shared is not there")
def test_the_shared_quotas(tmp_path: Path) -> None:
    case = json.loads((CASE / "expected.json").read_text())
    for name, expected in case["expected_cpus"].items():
        folder = tmp_path if name == "no_cgroup_files" else CASE / name
        found = usable_cpus(folder, host=case["host_cpus"], affinity=case["affinity_cpus"])
        assert found.count in (expected if isinstance(expected, list) else [expected]), name
        assert ("unreadable" in found.source) == (name == "broken")
    for name, expected in case["with_affinity_mask_of_3"].items():
        assert usable_cpus(CASE / name, host=case["host_cpus"], affinity=3).count == expected


@pytest.mark.parametrize(("usable", "workers", "each"), [(2, 2, 1), (4, 2, 2), (1, 2, 1), (3, 2, 1)])
def test_processes_of_a_host_share_its_cpus_and_none_is_bound_to_cores(usable: int, workers: int, each: int) -> None:
    container = Container(base=Path("/nowhere"), hosts=("algo-1",), current_host="algo-1", network_interface="lo")
    config = TrainConfig(strategy="horovod", workers_per_host=workers)
    found = roles(config, container, {"algo-1": "127.0.0.1"}, 7300, usable)
    assert [role.environment["OMP_NUM_THREADS"] for role in found] == [str(each)] * workers
    assert not any("KMP_AFFINITY" in role.environment for role in found)


def test_hyper_threads_of_one_core_are_one_core(tmp_path: Path) -> None:
    """CPUs 0 and 2 share a core, 1 and 3 another; the name of the file is that of older kernels for CPU 3."""
    names = ("core_cpus_list", "core_cpus_list", "core_cpus_list", "thread_siblings_list")
    topology = {f"cpu{cpu}/topology/{name}": f"{cpu % 2},{cpu % 2 + 2}\n" for cpu, name in enumerate(names)}
    tree(tmp_path, topology)
    assert [physical_cores(cpus, tmp_path) for cpus in ((0, 1, 2, 3), (0, 2), (0, 1), (3,))] == [2, 1, 2, 1]
    assert physical_cores((0, 9), tmp_path) is None
