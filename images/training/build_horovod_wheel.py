"""Build Horovod's wheel over Gloo against the installed TensorFlow, once, into a cache outside the checkout; then install it.

Horovod 0.28.1 predates TensorFlow 2.16, and three headers have moved since. No source is patched: two folders that TensorFlow ships
and one generated forwarding header are added to the include path. pip's own wheel cache is not used, because it is keyed by
Horovod's source and not by the TensorFlow that it was compiled against: a wheel for another TensorFlow would crash at import.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOROVOD = "0.28.1"
BUILD_FLAGS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_GPU": "1",
}


def wheel_folder(cache: Path) -> Path:
    """The cache entry of this TensorFlow, Horovod, Python and machine."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return cache / f"horovod-{HOROVOD}-tf{version('tensorflow-cpu')}-{python}-{platform.machine()}"


def missing_tools() -> list[str]:
    """Programs that the build needs and that are not on PATH."""
    compiler = [] if shutil.which("g++") or shutil.which("c++") else ["a C++ compiler (g++)"]
    return compiler + [tool for tool in ("cmake", "make") if shutil.which(tool) is None]


def include_path(shim: Path) -> str:
    """CPLUS_INCLUDE_PATH with TensorFlow's moved headers; writes the forwarding header under `shim`."""
    header = shim / "tensorflow/compiler/xla/client/xla_builder.h"
    header.parent.mkdir(parents=True)
    header.write_text('#include "xla/hlo/builder/xla_builder.h"\n')
    query = "import tensorflow as tf; print(tf.sysconfig.get_include())"
    tf_include = subprocess.run([sys.executable, "-c", query], check=True, capture_output=True, text=True).stdout.strip()
    folders = [f"{tf_include}/external/highwayhash", f"{tf_include}/external/farmhash_archive/src", str(shim)]
    return ":".join(folders + [os.environ[name] for name in ("CPLUS_INCLUDE_PATH",) if os.environ.get(name)])


def build(folder: Path) -> None:
    """Compile the wheel into `folder`, which appears only when complete; one progress line, the full log on failure."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as temporary:
        work = Path(temporary)
        environment = os.environ | BUILD_FLAGS | {"CPLUS_INCLUDE_PATH": include_path(work / "include")}
        environment.setdefault("MAKEFLAGS", f"-j{len(os.sched_getaffinity(0))}")
        # Messages and symbols hold paths of the sources: a folder of another name each time would make another library each time.
        flags = f"-ffile-prefix-map={work}=/horovod"
        environment |= {name: f"{os.environ.get(name, '')} {flags}".strip() for name in ("CFLAGS", "CXXFLAGS")}
        pip = [sys.executable, "-m", "pip", "--no-cache-dir"]
        alone = ["--no-deps", "--no-build-isolation"]
        fetch = [*pip, "download", *alone, "--no-binary=horovod", f"horovod=={HOROVOD}", "-d", str(work)]
        run_quietly(fetch, "Horovod's source was not found")
        shutil.unpack_archive(work / f"horovod-{HOROVOD}.tar.gz", work)
        command = [*pip, "wheel", *alone, str(work / f"horovod-{HOROVOD}"), "-w", str(work / "wheel")]
        log_path = folder.parent / "horovod-build.log"
        with log_path.open("w") as log:
            build_process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                started = time.monotonic()
                while build_process.poll() is None:
                    elapsed = int(time.monotonic() - started)
                    if sys.stdout.isatty() or elapsed % 30 == 0:
                        end = "\r" if sys.stdout.isatty() else "\n"
                        print(f"set-up: compiling Horovod {HOROVOD} ({elapsed} s; usually 4 minutes)", end=end, flush=True)
                    time.sleep(1)
            finally:
                if build_process.poll() is None:
                    build_process.kill()
        if build_process.returncode != 0:
            sys.exit(f"set-up: Horovod did not compile; the end of {log_path}:\n{log_path.read_text()[-3000:]}")
        (work / "wheel").rename(folder)


def run_quietly(command: list[str], problem: str) -> None:
    """Run a command whose output matters only when it fails (pip warns and TensorFlow greets on stderr)."""
    finished = subprocess.run(command, capture_output=True, text=True)
    if finished.returncode != 0:
        sys.exit(f"set-up: {problem}:\n{finished.stderr[-3000:]}")


def main() -> None:
    try:
        if version("horovod") == HOROVOD:
            return
    except PackageNotFoundError:
        pass
    cache = Path(os.environ.get("CTRFLOW_CACHE") or Path.home() / ".cache" / "ctrflow")
    folder = wheel_folder(cache)
    if not folder.is_dir():
        if missing := missing_tools():
            sys.exit(f"set-up: building Horovod needs {' and '.join(missing)}; on Debian: apt-get install g++ cmake make")
        build(folder)
    wheel = next(folder.glob("horovod-*.whl"))
    run_quietly([sys.executable, "-m", "pip", "install", "-q", "--no-deps", str(wheel)], f"{wheel} could not be installed")
    # Seen: a wheel for another TensorFlow installs without a word and crashes at import.
    run_quietly([sys.executable, "-c", "import horovod.tensorflow"], f"{wheel} does not import; remove its folder and run again")


if __name__ == "__main__":
    main()
