"""How many processes, and how much memory rows may take in them."""

from dataclasses import dataclass

from components.resources import usable_cpus, usable_memory

LARGEST_BOUND = 1 << 30
SHARE_OF_CONTAINER = 0.25
# Starting processes takes half a second, in which one process reads this much.
SMALL_INPUT_BYTES = 64 << 20
# A bucket that is sorted stands in memory up to this many times: as read, sorted, and as a batch.
_COPIES = 4
# Of the bound, what sorting may take; the rest is for chunks on their way and sets of ids.
_SORTING_SHARE = 0.5
_MOST_BITS = 8
# Text or records become about as many bytes of rows; gzip hides some.
_BUCKET_BYTES = 16 << 20


def memory_bound() -> int:
    """Bytes that rows may take in memory, in all processes together."""
    return min(LARGEST_BOUND, int(SHARE_OF_CONTAINER * usable_memory().bytes))


def processes_for(input_bytes: int) -> int:
    """As many as there are CPUs; one where starting more would take longer than the work."""
    return 1 if input_bytes < SMALL_INPUT_BYTES else usable_cpus().count


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """A bound, divided among processes."""

    bytes: int
    processes: int

    def bits(self, input_bytes: int) -> int:
        """Buckets are 2^bits, so many that one is small; a larger one costs time and not memory (spill.py)."""
        size = min(_BUCKET_BYTES, self._sorting_bytes())
        return min(max(-(-2 * input_bytes // size) - 1, 0).bit_length(), _MOST_BITS)

    def limit_rows(self, field_size: int) -> int:
        """Rows that a process may sort at once."""
        return max(self._sorting_bytes() // (4 * (3 + 2 * field_size)), 1)

    def _sorting_bytes(self) -> int:
        return int(_SORTING_SHARE * self.bytes) // (self.processes * _COPIES)
