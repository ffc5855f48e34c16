"""Compile the training program's TensorFlow operations, once, into a cache outside the checkout; copy them beside their sources.

The cache spares a second checkout, and one that was cleaned, the half minute of compiling. The copy is what training uses: it is
found from the package alone, in a container too, where the HOME of set-up and of training differ.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from components.train.program.kernel_library import SOURCES, compiler_flags, library_path


def tensorflow_flags() -> list[str]:
    """Include path, ABI and libraries of the installed TensorFlow; its headers as system headers, whose warnings are not ours."""
    query = "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags(), sep='\\n')"
    asked = subprocess.run([sys.executable, "-c", query], capture_output=True, text=True)
    if asked.returncode != 0:
        sys.exit(f"set-up: TensorFlow does not import:\n{asked.stderr[-3000:]}")
    return [f"-isystem{flag[2:]}" if flag.startswith("-I") else flag for flag in asked.stdout.splitlines()]


def compiler() -> str:
    """The C++ compiler: CXX, or the first that is there."""
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and (path := shutil.which(name)):
            return path
    sys.exit("set-up: the training operations need a C++ compiler (g++); on Debian: apt-get install g++")


def build(library: Path) -> None:
    """Compile into `library`, which appears only when complete; one progress line, the full log on failure."""
    program = compiler()
    print("set-up: compiling the training operations (usually half a minute)", flush=True)
    started = time.monotonic()
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent, prefix=".building-") as temporary:
        made = Path(temporary) / library.name
        # The libraries that TensorFlow names come after what needs them.
        command = [program, *compiler_flags(), "-Wall", *map(str, SOURCES), "-o", str(made), *tensorflow_flags()]
        finished = subprocess.run(command, capture_output=True, text=True)
        if finished.returncode != 0:
            log = library.parent / "kernels-build.log"
            log.write_text(f"{' '.join(command)}\n{finished.stderr}")
            sys.exit(f"set-up: the training operations did not compile; the end of {log}:\n{finished.stderr[-3000:]}")
        # TensorFlow loads whatever it is given: a library that does not load must not reach the cache.
        load = "import sys, tensorflow as tf; tf.load_op_library(sys.argv[1])"
        loaded = subprocess.run([sys.executable, "-c", load, str(made)], capture_output=True, text=True)
        if loaded.returncode != 0:
            sys.exit(f"set-up: the training operations compiled but do not load:\n{loaded.stderr[-3000:]}")
        made.replace(library)
    print(f"set-up: compiled the training operations in {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    wanted = library_path()
    if wanted.is_file():
        return
    cache = Path(os.environ.get("CTRFLOW_CACHE") or Path.home() / ".cache" / "ctrflow")
    cached = cache / wanted.name
    if not cached.is_file():
        build(cached)
    temporary = wanted.with_name(f".{wanted.name}.{os.getpid()}")
    shutil.copyfile(cached, temporary)
    temporary.replace(wanted)


if __name__ == "__main__":
    main()
