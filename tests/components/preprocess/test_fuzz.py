"""Fuzzing: small valid inputs, mutated; preprocess either refuses in one line or gives as many rows as there are.

`make test` does it for some seconds; CTRFLOW_FUZZ_SECONDS=300 sets for how long, shared by the formats.
"""

import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.errors import InvalidConfig, InvalidRecords
from components.examples import encode_example
from components.framing import frame
from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess
from components.verification import verify_dataset

SECONDS = float(os.environ.get("CTRFLOW_FUZZ_SECONDS", "6"))
FORMATS = ("criteo", "libsvm", "tfrecord")
# Pieces that readers of numbers and of text are known to trip over.
PIECES = (
    *(b"", b"\n", b"\r\n", b"\r", b"\n\n", b"\t", b"\t\t\t", b" ", b":", b"#", b",", b"-", b"+", b".", b"e", b"_", b"|", b'"'),
    *(b"\0", b"\xff", b"\x0b", b"\x85", b"\xe2\x80\xa8", b"\xc2\xa0", b"\xd9\xa1", b"# a comment\n"),
    *(b"nan", b"inf", b"-inf", b"1e999", b"1_000", b"0x1f", b"9" * 25, b"-1", b"1.5", b"1:", b":1", b"3:2:1", b"qid:1"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"PK\x03\x04"),
)


def criteo() -> bytes:
    row = b"1\t" + b"\t".join(b"%d" % n for n in range(13)) + b"\t" + b"\t".join(b"%08x" % n for n in range(26)) + b"\n"
    return row + b"0" + b"\t" * 39 + b"\n" + row.replace(b"\t5\t", b"\t-2\t")


def libsvm() -> bytes:
    return b"1 1:1 2:0.5 3:-2e-3\n0 4:1 5:1 6:0\n+1 7:1 8:1 9:.5 # last\n"


def tfrecord() -> bytes:
    rows = ((1.0, [1, 2, 3]), (0.0, [4, 5, 6]), (1.0, [7, 8, 9]))
    return b"".join(frame(encode_example(label, np.array(ids), np.float32([1, 0.5, -2]))) for label, ids in rows)


SEEDS: dict[str, Callable[[], bytes]] = {"criteo": criteo, "libsvm": libsvm, "tfrecord": tfrecord}


def lines_of(text: bytes) -> list[bytes]:
    return text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").removesuffix(b"\r").split(b"\n")


def rows_in(source_format: str, content: bytes) -> int:
    """Rows of an input that was accepted, counted without our readers."""
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if source_format == "libsvm":
        return sum(bool(line.partition(b"#")[0].strip()) for line in lines_of(content))
    if source_format == "criteo":
        return sum(bool(line.strip(b" ")) for line in lines_of(content))
    count, position = 0, 0
    while position < len(content):
        position += 16 + int.from_bytes(content[position : position + 8], "little")
        count += 1
    assert position == len(content)
    return count


@st.composite
def mutated(draw: st.DrawFn, seed: bytes) -> bytes:
    """The seed after a few insertions, deletions, replacements and copies; of text sometimes gzipped, and that damaged too."""
    content = seed
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(content)))
        end = min(start + draw(st.sampled_from([0, 0, 1, 1, 2, 8, 40])), len(content))
        other = draw(st.sampled_from(["piece", "bytes", "copy"]))
        if other == "piece":
            new = draw(st.sampled_from(PIECES))
        elif other == "bytes":
            new = draw(st.binary(max_size=6))
        else:
            copied = draw(st.integers(0, len(content)))
            new = content[copied : copied + draw(st.integers(0, 120))]
        content = content[:start] + new + content[end:]
    return content


@st.composite
def inputs(draw: st.DrawFn, source_format: str) -> bytes:
    seed = SEEDS[source_format]()
    if source_format == "tfrecord" and draw(st.booleans()):
        # Wrong contents within right checksums, which damage to bytes never gets past.
        payloads = draw(st.lists(mutated(encode_example(1.0, np.array([1, 2, 3]), np.ones(3, np.float32))), min_size=1, max_size=3))
        return b"".join(map(frame, payloads))
    kind = draw(st.sampled_from(["plain", "plain", "plain", "gzip", "damaged gzip"]))
    if kind == "plain":
        return draw(mutated(seed))
    if kind == "gzip":
        return gzip.compress(draw(mutated(seed)), mtime=0)
    return draw(mutated(gzip.compress(seed, mtime=0)))


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("source_format", FORMATS)
def test_mutated_input_is_refused_in_one_line_or_counted_right(source_format: str) -> None:
    deadline = time.monotonic() + SECONDS / len(FORMATS)
    outcomes = {"accepted": 0, "refused": 0}

    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(content=inputs(source_format), sizes=st.sampled_from([(0, 0), (3, 100)]), id_base=st.sampled_from([0, 0, 1]))
    def check(content: bytes, sizes: tuple[int, int], id_base: int) -> None:
        if time.monotonic() > deadline:
            return
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "in").write_bytes(content)
            field_size, feature_size = (0, 0) if source_format == "criteo" else sizes
            config = PreprocessConfig(
                format=source_format,  # type: ignore[arg-type]
                field_size=field_size,
                feature_size=feature_size,
                id_base=0 if source_format == "criteo" else id_base,
            )
            try:
                manifest = preprocess(config, [str(folder / "in")], folder / "out", folder / "report.html")
            except (InvalidRecords, InvalidConfig) as error:
                refusal = str(error)
            else:
                refusal = ""
            outcomes["refused" if refusal else "accepted"] += 1
            if refusal:
                assert refusal.isprintable()
                assert sorted(path.name for path in folder.iterdir()) == ["in"]
                return
            assert manifest.train.examples + manifest.validation.examples == rows_in(source_format, content)
            assert verify_dataset(folder / "out", 1)[1].count == 0

    # Each call draws other inputs: a few hundred at a time keep hypothesis from remembering them all.
    while time.monotonic() < deadline:
        check()
    print(f"{source_format}: {outcomes}")
    assert min(outcomes.values()) > 0
