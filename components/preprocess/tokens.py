"""Tokens of a column as Arrow arrays: each distinct one once, its places, and how often it stands there.

Array suffix: N tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The tokens of some cells: `distinct` ones, binary [N], and of each cell the place among them, N where there is no token."""

    distinct: pa.BinaryArray
    places: NDArray[np.integer[Any]]

    def stands(self) -> NDArray[np.bool_]:
        """Whether each stands in a row; a dictionary may also have tokens of rows that were taken out, bool [N]."""
        return self._counts() > 0

    def counts(self) -> "TokenCounts":
        """How often each stands there."""
        found = self._counts()
        there = found > 0
        return TokenCounts(tokens=self.distinct if there.all() else self.distinct.filter(pa.array(there)), counts=found[there])

    def _counts(self) -> NDArray[np.int64]:
        return np.bincount(self.places, minlength=len(self.distinct) + 1)[: len(self.distinct)]


def tokens_of(column: pa.Array) -> Tokens:
    """The tokens of a column of raw rows (raw_rows.py), lists opened. An empty token is none: not every reader says null."""
    encoded = (pc.list_flatten(column) if pa.types.is_list(column.type) else column).dictionary_encode()
    distinct, indices = encoded.dictionary.cast(pa.binary()), encoded.indices
    places = (pc.fill_null(indices, len(distinct)) if indices.null_count else indices).to_numpy()
    there = np.diff(token_offsets(distinct)) > 0
    if there.all():
        return Tokens(distinct=distinct, places=places)
    renumbered = np.append(np.where(there, np.cumsum(there) - 1, there.sum()), there.sum())
    return Tokens(distinct=distinct.filter(pa.array(there)), places=renumbered[places])


def token_offsets(tokens: pa.BinaryArray) -> NDArray[np.int32]:
    """Where in the buffer of its bytes each token starts, and the last one ends, int32 [N + 1]."""
    offsets: NDArray[np.int32] = np.frombuffer(tokens.buffers()[1], np.int32)[tokens.offset : tokens.offset + len(tokens) + 1]
    return offsets


@dataclass(frozen=True, kw_only=True)
class TokenCounts:
    """Distinct tokens, binary [N], in no order, and how often each stands somewhere, int64 [N]."""

    tokens: pa.BinaryArray
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.counts)

    def frequent(self, least: int, most: int) -> list[bytes]:
        """Those that stand there `least` times or more, the most frequent first, ties by token; at most `most` (0: all)."""
        often = self.counts >= least
        table = pa.table({"token": self.tokens.filter(pa.array(often)), "count": self.counts[often]})
        order = pc.sort_indices(table, sort_keys=[("count", "descending"), ("token", "ascending")])
        found: list[bytes] = table["token"].take(order[: most or None]).to_pylist()
        return found


NO_TOKENS = TokenCounts(tokens=pa.array([], pa.binary()), counts=np.empty(0, np.int64))


def added(parts: Sequence[TokenCounts]) -> TokenCounts:
    """The counts of all parts together."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else NO_TOKENS
    table = pa.table(
        {"token": pa.concat_arrays([part.tokens for part in filled]), "count": np.concatenate([p.counts for p in filled])}
    )
    found = table.group_by("token", use_threads=False).aggregate([("count", "sum")]).combine_chunks()
    return TokenCounts(tokens=found["token"].chunk(0), counts=found["count_sum"].to_numpy())
