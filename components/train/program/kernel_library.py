"""Where the compiled operations of kernels.cc and shared_memory.cc are. Imports no TensorFlow, so that set-up can ask in no time.

The library lies beside its sources, in the checkout as in an installed package: a training process finds it whatever its
HOME and environment are. Its name holds a digest of all that it was compiled from, so that a stale one counts as missing.
"""

import hashlib
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = (FOLDER / "kernels.cc", FOLDER / "shared_memory.cc")
# What the library is compiled for, in Linux's words and the compiler's. Not -march=native: an image is built on one machine and
# runs on another. Both are in every x86 instance since 2014; a CPU without them ends a process by SIGILL, so `kernels.load` asks.
INSTRUCTIONS = ("avx2", "fma") if platform.machine() in ("x86_64", "AMD64") else ()


def tensorflow_version() -> str:
    """Of whichever distribution provides it: tensorflow-cpu does not exist for every machine."""
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            return f"{name}-{version(name)}"
        except PackageNotFoundError:
            continue
    return "no-tensorflow"


def library_name() -> str:
    """File name of the library of these sources, TensorFlow, Python and machine."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES))
    digest.update("\n".join((tensorflow_version(), f"{sys.version_info[:2]}", platform.machine(), *compiler_flags())).encode())
    return f"kernels-{digest.hexdigest()[:16]}.so"


def compiler_flags() -> tuple[str, ...]:
    """What the operations need of the compiler, besides TensorFlow's own flags."""
    machine = (f"-m{instructions}" for instructions in INSTRUCTIONS)
    return ("-shared", "-fPIC", "-O3", "-DNDEBUG", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", *machine)


def library_path() -> Path:
    """Where the library is, or would be."""
    return FOLDER / library_name()
