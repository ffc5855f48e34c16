"""What the CPUs and this process use while something runs."""

import threading

import psutil


class Sampler:
    """Samples CPU per core and this process's memory in a thread while its block runs."""

    def __init__(self, interval_s: float = 0.5) -> None:
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="sampler", daemon=True)
        self._cores: list[list[float]] = []
        self.rss_bytes = 0

    def _sample(self) -> None:
        process = psutil.Process()
        psutil.cpu_percent(percpu=True)
        while not self._end.wait(self._interval_s):
            self._cores.append(psutil.cpu_percent(percpu=True))
            self.rss_bytes = max(self.rss_bytes, process.memory_info().rss)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self.rss_bytes = max(self.rss_bytes, psutil.Process().memory_info().rss)

    def cpu_percent_per_core(self) -> list[float]:
        """Mean of every core, 0..100; empty when the block was shorter than one interval."""
        return [sum(core) / len(core) for core in zip(*self._cores, strict=True)]
