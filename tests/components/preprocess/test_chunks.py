"""Chunks between processes: what stands in the file is read there again, and anything else travels."""

import gzip
import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest

from components.errors import InvalidRecords
from components.framing import frame
from components.preprocess.chunks import record_chunks, text_chunks
from components.preprocess.digests import Digests

LINES = "".join(f"1 {number}:0.5\n" for number in range(3000)).encode()


def test_bytes_of_a_file_do_not_travel(tmp_path: Path) -> None:
    records = b"".join(frame(bytes([65 + number % 26]) * 20) for number in range(3000))
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbf" + LINES + b"1 7:1")
    (tmp_path / "records").write_bytes(records)
    for name, read, expected in (("text", text_chunks, LINES + b"1 7:1"), ("records", record_chunks, records)):
        chunks = list(read(tmp_path / name, chunk_bytes=8192))
        sent = [pickle.dumps(chunk) for chunk in chunks]
        # The positions of the ends of records travel: 8 bytes each.
        assert max(len(each) - 8 * len(chunk.ends) for each, chunk in zip(sent, chunks, strict=True)) < 600
        received = [pickle.loads(each) for each in sent]
        assert b"".join(chunk.data for chunk in received) == expected
        assert [(chunk.first, chunk.data, chunk.ends.tolist()) for chunk in received] == [
            (chunk.first, chunk.data, chunk.ends.tolist()) for chunk in chunks
        ]


def test_bytes_that_are_not_in_the_file_travel(tmp_path: Path) -> None:
    (tmp_path / "in.gz").write_bytes(gzip.compress(LINES))
    sent = [pickle.dumps(chunk) for chunk in text_chunks(tmp_path / "in.gz", chunk_bytes=8192)]
    (tmp_path / "in.gz").unlink()
    assert b"".join(pickle.loads(each).data for each in sent) == LINES


def test_a_file_that_became_shorter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(LINES)
    last = pickle.dumps(list(text_chunks(path, chunk_bytes=8192))[-1])
    path.write_bytes(LINES[:-1])
    with pytest.raises(InvalidRecords, match=f"^{path}: became shorter while it was read"):
        pickle.loads(last)
    path.unlink()
    with pytest.raises(InvalidRecords, match=rf"^{path}: cannot be read \(No such file or directory\)"):
        pickle.loads(last)


def test_digests_are_those_of_the_whole_files(tmp_path: Path) -> None:
    contents = {tmp_path / "empty": b"", tmp_path / "large": np.random.default_rng(0).bytes(3_000_001)}
    for path, content in contents.items():
        path.write_bytes(content)
    with Digests([*contents, tmp_path / "none"]) as digests:
        for path, content in contents.items():
            assert digests.of(path) == hashlib.sha256(content).hexdigest()
        with pytest.raises(FileNotFoundError):
            digests.of(tmp_path / "none")
