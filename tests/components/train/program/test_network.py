"""Two hosts with a network of their own each and a slow link between them: training works, and says what the link costs.

Network namespaces joined by a pair of virtual interfaces, whose rate is limited. They need root.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

NAMES = [f"ctrflow-{os.getpid()}-{index}" for index in (1, 2)]
# Files that `ip netns exec` puts in the place of those of /etc.
ETC = Path("/etc/netns")
# Interface names hold 15 characters.
INTERFACE = "ctrflow0"
ADDRESSES = ("10.213.77.1", "10.213.77.2")
EMBEDDING, BATCH, STEPS = 15, 512, 40
MODEL = {"embedding_size": EMBEDDING, "deep_layers": "[16]", "batch_size": BATCH, "steps": STEPS, "epochs": 9}
# At the slow rate the gradients of a step take 26 ms, more than all else in it: a busy machine must not hide the link.
SLOW_BITS, FAST_BITS = 20e6, 1e9


def command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")


def inside(name: str, *words: str) -> None:
    command("ip", "netns", "exec", name, *words)


def limit(bits_per_s: float) -> None:
    """Set what the link carries, in either direction."""
    for name in NAMES:
        rate = ("rate", f"{bits_per_s:.0f}bit", "burst", "128kb", "latency", "200ms")
        inside(name, "tc", "qdisc", "replace", "dev", INTERFACE, "root", "tbf", *rate)


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[None]:
    """The namespaces and the link; deleting a namespace deletes its end of the link, and with it the other."""
    if not (shutil.which("ip") and shutil.which("tc")) or os.geteuid():
        pytest.skip("network namespaces need root, ip and tc")
    try:
        try:
            for name, address in zip(NAMES, ADDRESSES, strict=True):
                command("ip", "netns", "add", name)
                # Seen as /etc/hosts inside. The machine's name must be this host's address there: for process sets Horovod forgets
                # the interface that it was given, and Gloo looks up the name.
                hosts = ETC / name / "hosts"
                hosts.parent.mkdir(parents=True)
                hosts.write_text(f"127.0.0.1 localhost\n{address} {socket.gethostname()}\n")
            command("ip", "link", "add", INTERFACE, "netns", NAMES[0], "type", "veth", "peer", "name", INTERFACE, "netns", NAMES[1])
            for name, address in zip(NAMES, ADDRESSES, strict=True):
                inside(name, "ip", "address", "add", f"{address}/24", "dev", INTERFACE)
                inside(name, "ip", "link", "set", "lo", "up")
                inside(name, "ip", "link", "set", INTERFACE, "up")
            limit(FAST_BITS)
        except OSError as error:
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield
    finally:
        for name in NAMES:
            subprocess.run(("ip", "netns", "delete", name), capture_output=True)
            shutil.rmtree(ETC / name, ignore_errors=True)
        with suppress(OSError):  # not there, or others' files are in it
            ETC.rmdir()


@pytest.mark.alone
@pytest.mark.usefixtures("two_hosts")
@pytest.mark.parametrize(
    "settings",
    [{"strategy": "horovod", "embedding_placement": "replicated_sparse"}, {"strategy": "parameter_server"}],
    ids=["horovod", "parameter-server"],
)
def test_the_communication_share_grows_as_the_link_shrinks(
    run_job: Callable[..., Any], make_network: Callable[..., Any], dataset: Path, settings: dict[str, Any]
) -> None:
    prefixes = tuple(("ip", "netns", "exec", name) for name in NAMES)
    network = make_network(addresses=ADDRESSES, interface=INTERFACE, prefixes=prefixes)
    found = []
    for rate in (FAST_BITS, SLOW_BITS):
        limit(rate)
        job = run_job(dataset, 2, network=network, **settings, **MODEL)
        assert job.wait() == [0, 0], job.log()
        found.append(job.training())
    fast, slow = found
    assert slow["communication_share"] > fast["communication_share"]
    # A batch of 512 rows of 5 fields has over 1,000 distinct ids: field 0 is always the same, 4 x 512 others are drawn from 2000. A
    # worker sends a gradient of 16 numbers for each, and half of them go to the other host where servers share them.
    distinct = 1000
    sent = distinct * (1 + EMBEDDING) * 4 * (1.0 if settings["strategy"] == "horovod" else 0.5)
    assert slow["step_time_s"]["p50"] > 8 * sent / SLOW_BITS
    assert slow["communication_share"] * slow["step_time_s"]["p50"] > 0.5 * 8 * sent / SLOW_BITS
