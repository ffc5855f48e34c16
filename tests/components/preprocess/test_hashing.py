"""XXH64 as others compute it: expected values by the xxhash package of Python (0.8), and from the tests of cespare/xxhash."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.preprocess.hashing import token_hashes


def token_hash(seed: int, token: bytes) -> int:
    """That of a token alone."""
    return int(token_hashes(pa.array([token], pa.binary()), np.array([seed], np.uint64))[0])


@pytest.mark.parametrize(
    ("token", "seed", "expected"),
    [
        (b"", 0, 0xEF46DB3751D8E999),
        (b"a", 0, 0xD24EC4F1A98C6E5B),
        (b"as", 0, 0x1C330FB2D66BE179),
        (b"asd", 0, 0x631C37CE72A97393),
        (b"asdf", 0, 0x415872F599CEA71E),
        (b"Call me Ishmael. Some years ago--never mind how long precisely-", 0, 0x02A2E85470D6FD96),
        (b"68fd1e64", 0, 0x5D3CCD85C9C22FE4),
        (b"80e26c9b", 1, 0xD1540616D053418F),
        ("São Tomé".encode(), 7, 0x8586455174A675D3),
        (b"0123456789abcdef0123456789abcdef0123456789", 3, 0x1DFC175363740781),
    ],
)
def test_hashes_are_those_of_the_specification(token: bytes, seed: int, expected: int) -> None:
    assert token_hash(seed, token) == expected


@given(st.lists(st.tuples(st.binary(max_size=70), st.integers(0, 2**64 - 1))), st.integers(0, 3))
def test_a_token_has_its_hash_whatever_stands_beside_it(pairs: list[tuple[bytes, int]], skipped: int) -> None:
    tokens, seeds = [token for token, _ in pairs], np.array([seed for _, seed in pairs], np.uint64)
    found = token_hashes(pa.array(tokens, pa.binary()).slice(skipped), seeds[skipped:])
    assert found.tolist() == [token_hash(seed, token) for token, seed in pairs[skipped:]]
