"""How many files the train split becomes, so that they divide evenly over hosts and workers that are not chosen yet.

    train rows           shards           divide evenly over
    below 393,216        4                1, 2, 4 workers
    from   393,216       12               3, 6, 12 too
    from   786,432       24               8, 24 too
    from 1,572,864       48, 96, 144 ...  16, 48 too; so many that none has more than 1,048,576 rows

Shards of a split differ by at most one row. Smaller ones than 32,768 rows would be many small files, which every reader pays for;
larger ones than a million (400 MB of 39 fields) would keep Spark from writing, and hosts from loading, several at once.
"""

from math import lcm

_LEAST_ROWS, _MOST_ROWS = 1 << 15, 1 << 20
_COUNTS = (48, 24, 12)
_FEWEST = 4


def shard_count(train_rows: int, workers: int = 1) -> int:
    """Shards of the train split; a multiple of `workers`, those of all hosts together, where they are known."""
    counts = [lcm(count, workers) for count in _COUNTS]
    chosen = next((count for count in counts if count * _LEAST_ROWS <= train_rows), lcm(_FEWEST, workers))
    return chosen * max(-(-train_rows // (chosen * _MOST_ROWS)), 1)
