"""Hashes of tokens: XXH64, which is the same on every machine and day, in every language, and in Spark (`xxhash64`).

Tokens are hashed by the array and not one by one, which would cost more than reading them does.

Array suffix: N tokens.
Source: Collet, the xxHash specification, github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.preprocess.tokens import token_offsets

Words = NDArray[np.uint64]
_1, _2, _3, _4, _5 = (
    np.uint64(prime)
    for prime in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_STRIPE = 32


def token_hashes(tokens: pa.BinaryArray, seeds_N: Words) -> Words:
    """XXH64 of each token with its seed; `tokens` has no nulls."""
    hashes = np.empty(len(tokens), np.uint64)
    # Without wrapping there is no hash; numpy warns of it for scalars alone.
    with np.errstate(over="ignore"):
        for chosen, octets in _by_length(tokens):
            hashes[chosen] = _hash(octets, seeds_N[chosen])
    return hashes


def _by_length(tokens: pa.BinaryArray) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """The places of tokens of the same length, and their bytes, uint8 [n, length]."""
    if not len(tokens):
        return
    data = tokens.buffers()[2]
    offsets, octets = token_offsets(tokens).astype(np.int64), np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    found, firsts = np.unique(lengths[order], return_index=True)
    for length, chosen in zip(found.tolist(), np.split(order, firsts[1:]), strict=True):
        starts = offsets[chosen]
        first, count = int(starts[0]), len(chosen)
        # Tokens of one length mostly follow one another, and need no copy.
        if starts[-1] - first == length * (count - 1) and (np.diff(starts) == length).all():
            yield chosen, octets[first : first + length * count].reshape(count, length)
        else:
            yield chosen, octets[starts[:, np.newaxis] + np.arange(length)]


def _hash(octets_NL: NDArray[np.uint8], seeds_N: Words) -> Words:
    length = octets_NL.shape[1]
    words = np.ascontiguousarray(octets_NL[:, : length // 8 * 8]).view("<u8")
    done = length // _STRIPE * 4
    state = (_stripes(words[:, :done], seeds_N) if done else seeds_N + _5) + np.uint64(length)
    for column in range(done, words.shape[1]):
        state = _turned(state ^ _round(words[:, column]), 27) * _1 + _4
    rest = words.shape[1] * 8
    if length - rest >= 4:
        half = np.ascontiguousarray(octets_NL[:, rest : rest + 4]).view("<u4")[:, 0].astype(np.uint64)
        state = _turned(state ^ half * _1, 23) * _2 + _3
        rest += 4
    for column in range(rest, length):
        state = _turned(state ^ octets_NL[:, column].astype(np.uint64) * _5, 11) * _1
    state = (state ^ state >> np.uint64(33)) * _2
    state = (state ^ state >> np.uint64(29)) * _3
    return state ^ state >> np.uint64(32)


def _stripes(words: Words, seeds_N: Words) -> Words:
    """Tokens of 32 bytes and more go through four states at once, a word each."""
    states = [seeds_N + _1 + _2, seeds_N + _2, seeds_N, seeds_N - _1]
    for column in range(words.shape[1]):
        states[column % 4] = _round(words[:, column], states[column % 4])
    state = sum((_turned(each, by) for each, by in zip(states, (1, 7, 12, 18), strict=True)), np.zeros_like(seeds_N))
    for each in states:
        state = (state ^ _round(each)) * _1 + _4
    return state


def _round(words_N: Words, state_N: Words | None = None) -> Words:
    mixed = words_N * _2
    return _turned(mixed if state_N is None else state_N + mixed, 31) * _1


def _turned(words_N: Words, by: int) -> Words:
    return words_N << np.uint64(by) | words_N >> np.uint64(64 - by)
