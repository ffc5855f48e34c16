"""Fuzzing: small valid inputs, mutated; preprocess either refuses in one line or gives as many rows as there are.

`make test` tries the same few inputs every time; CTRFLOW_FUZZ_SECONDS=300 tries others for so long, shared by the formats.
"""

import csv
import gzip
import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.errors import InvalidConfig, InvalidRecords
from components.examples import encode_example
from components.framing import frame
from components.preprocess.config import PreprocessConfig
from components.preprocess.fitting import TransformConfig
from components.preprocess.step import preprocess
from components.verification import verify_dataset

SECONDS = float(os.environ.get("CTRFLOW_FUZZ_SECONDS", "0"))
# Pieces that readers of numbers and of text are known to trip over.
PIECES = (
    *(b"", b"\n", b"\r\n", b"\r", b"\n\n", b"\t", b"\t\t\t", b" ", b":", b"#", b",", b";", b"-", b"+", b".", b"e", b"_", b"|"),
    *(b"\0", b"\xff", b"\x0b", b"\x85", b"\xe2\x80\xa8", b"\xc2\xa0", b"\xd9\xa1", b"# a comment\n"),
    *(b'"', b'""', b'"\n"', b'","', b',"a\nb",', b'"a""b"', b'\n"', b'"\r\n'),
    *(b"nan", b"inf", b"-inf", b"1e999", b"1_000", b"0x1f", b"9" * 25, b"-1", b"1.5", b"1:", b":1", b"3:2:1", b"qid:1"),
    *(b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b", b"PK\x03\x04"),
)
COLUMNS = "label=click; numeric=price; categorical=country; multi_valued=tags:|:2; ignored=day"
NAMES = ("click", "price", "country", "tags", "day")
Settings = dict[str, Any]


def lines_of(text: bytes) -> list[bytes]:
    return text.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").removesuffix(b"\r").split(b"\n")


def rows_of_svm(content: bytes, _: Settings) -> int:
    return sum(bool(line.partition(b"#")[0].strip()) for line in lines_of(content))


def rows_of_criteo(content: bytes, _: Settings) -> int:
    return sum(bool(line.strip(b" ")) for line in lines_of(content))


def records(content: bytes, _: Settings) -> int:
    """By lengths alone."""
    count, position = 0, 0
    while position < len(content):
        position += 16 + int.from_bytes(content[position : position + 8], "little")
        count += 1
    assert position == len(content)
    return count


def rows_of_csv(content: bytes, chosen: Settings) -> int:
    """By Python's csv module. Latin-1, because a row is one in whatever encoding its ignored cells are."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode("latin-1")
    found = csv.reader(io.StringIO(text, newline=""), delimiter=chosen.get("separator", ","), strict=True)
    rows = [cells for cells in found if len(cells) > 1 or "".join(cells).strip(" ")]
    return len(rows) - (not chosen.get("names"))


def rows_of_parquet(content: bytes, _: Settings) -> int:
    """By pyarrow, whole columns at once. A file whose ignored column is damaged is as good as any."""
    return int(pq.read_table(io.BytesIO(content), columns=list(NAMES[:-1])).num_rows)


def example(features: dict[str, Sequence[Any]]) -> bytes:
    """A record as TensorFlow writes it."""
    kinds = {
        float: lambda values: tf.train.Feature(float_list=tf.train.FloatList(value=values)),
        int: lambda values: tf.train.Feature(int64_list=tf.train.Int64List(value=values)),
        bytes: lambda values: tf.train.Feature(bytes_list=tf.train.BytesList(value=values)),
    }
    made = {name: kinds[type(values[0])](values) for name, values in features.items()}
    return bytes(tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString())


def parquet(table: dict[str, Any], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(table), sink, **options)
    return sink.getvalue()


SCORES: Sequence[dict[str, Any]] = (
    {"click": [1.0], "price": [2.5], "country": [b"NA"], "tags": [b"a", b"b"], "day": [b"1"]},
    {"click": [0], "price": [3], "country": [12], "tags": [7]},
    {"click": [1.0], "tags": ["Zürich".encode()]},
)
TABLE = {
    "click": [1, 0, 1],
    "price": [0.5, None, -2.0],
    "country": ["NA", None, "Zürich"],
    "tags": [["a", "b"], None, [None, ""]],
    "day": ["1", "2", "3"],
}
# Columns of types and values that do not all fit their roles.
ODD_COLUMNS = (
    pa.array([1, 0, 1]),
    pa.array([1, None, 0], pa.int8()),
    pa.array([True, False, None]),
    pa.array([0.0, float("nan"), 1.0]),
    pa.array([1e300, -1.0, 1.0]),
    pa.array([2**63, 1, 0], pa.uint64()),
    pa.array(["a", "", None]),
    pa.array(["a|b", "c|d|e", "|"]).dictionary_encode(),
    pa.array([b"\xff", b"a", None]),
    pa.array([["a"], [], ["a", "b", "c"]]),
    pa.array([[1], None, [None]], pa.large_list(pa.int64())),
    pa.array([{"a": 1}, None, {"a": 2}]),
    pa.array([[[1]], None, []]),
    pa.nulls(3),
)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A format to be fuzzed.

    Attributes:
        seed: a small valid input. rows: counts those of an input without our readers.
        settings: ways in which it may be read, of which one is drawn. payloads: of TFRecords, what stands in right checksums.
        tables: of Parquet, whole files of odd columns, too. counts_rejects: whether rows that are skipped are rows that are there.
    """

    seed: bytes
    rows: Callable[[bytes, Settings], int]
    settings: tuple[Settings, ...]
    payloads: tuple[bytes, ...] = field(default=())
    tables: bool = False
    zipped: bool = True
    counts_rejects: bool = True


SIZES: tuple[Settings, ...] = ({}, {}, {"id_base": 1}, {"field_size": 3, "feature_size": 100}, {"on_bad_row": "skip"})
CRITEO_ROW = b"1\t" + b"\t".join(b"%d" % n for n in range(13)) + b"\t" + b"\t".join(b"%08x" % n for n in range(26)) + b"\n"
RECORDS = tuple(
    encode_example(label, np.array(ids), np.float32([1, 0.5, -2]))
    for label, ids in ((1.0, [1, 2, 3]), (0.0, [4, 5, 6]), (1.0, [7, 8, 9]))
)
NAMED = tuple(map(example, SCORES))
KINDS = {
    "criteo": Kind(
        seed=CRITEO_ROW + b"0" + b"\t" * 39 + b"\n" + CRITEO_ROW.replace(b"\t5\t", b"\t-2\t"),
        rows=rows_of_criteo,
        settings=({}, {}, {"on_bad_row": "skip"}),
    ),
    "libsvm": Kind(seed=b"1 1:1 2:0.5 3:-2e-3\n0 4:1 5:1 6:0\n+1 7:1 8:1 9:.5 # last\n", rows=rows_of_svm, settings=SIZES),
    "libffm": Kind(
        seed=b"1 1:1:1 2:2:0.5 3:3:-2e-3\n0 2:4:1 1:5:1\n+1 1:7:1 3:9:.5 # last\n-1\n",
        rows=rows_of_svm,
        settings=(*SIZES, {"field_base": 1}, {"field_size": 3, "field_base": 1, "values_per_field": 2}),
    ),
    "tfrecord": Kind(seed=b"".join(map(frame, RECORDS)), rows=records, settings=SIZES, payloads=RECORDS),
    "csv": Kind(
        seed='click,price,country,tags,day\n1,10,"NA",a|b,1\n0,,"two\nlines",,2\n-1, 1e3 ,"say ""hi""",Zürich,3\n'.encode(),
        rows=rows_of_csv,
        settings=(
            {"columns": COLUMNS},
            {"columns": COLUMNS},
            {
                "columns": COLUMNS + "; missing=NA",
                "fitting": TransformConfig(categories="vocabulary", min_count=1, numbers="bucket"),
            },
            {"columns": COLUMNS, "on_bad_row": "skip"},
            {"columns": COLUMNS, "on_bad_row": "skip", "names": NAMES},
            {"columns": "label=click; ignored=*"},
        ),
        # A stray quote takes with it what follows up to the next one.
        counts_rejects=False,
    ),
    "parquet": Kind(
        seed=parquet(TABLE),
        rows=rows_of_parquet,
        settings=({"columns": COLUMNS}, {"columns": COLUMNS}, {"columns": COLUMNS, "on_bad_row": "skip"}),
        tables=True,
        zipped=False,
    ),
    "named tfrecord": Kind(
        seed=b"".join(map(frame, NAMED)),
        rows=records,
        settings=({"columns": COLUMNS}, {"columns": COLUMNS}, {"columns": COLUMNS, "on_bad_row": "skip"}),
        payloads=NAMED,
    ),
}


@st.composite
def mutated(draw: st.DrawFn, seed: bytes) -> bytes:
    """The seed after a few insertions, deletions, replacements and copies."""
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
def inputs(draw: st.DrawFn, kind: Kind) -> bytes:
    if kind.payloads and draw(st.booleans()):
        # Wrong contents within right checksums, which damage to bytes never gets past.
        payloads = draw(st.lists(st.one_of(*map(mutated, kind.payloads)), min_size=1, max_size=3))
        return b"".join(map(frame, payloads))
    if kind.tables and draw(st.booleans()):
        columns = {name: draw(st.sampled_from([*ODD_COLUMNS, pa.array(TABLE[name])])) for name in TABLE}
        return parquet(columns, row_group_size=draw(st.sampled_from([1, 2, 3])), version=draw(st.sampled_from(["1.0", "2.6"])))
    way = draw(st.sampled_from(["plain", "plain", "plain", "gzip", "damaged gzip"])) if kind.zipped else "plain"
    if way == "plain":
        return draw(mutated(kind.seed))
    if way == "gzip":
        return gzip.compress(draw(mutated(kind.seed)), mtime=0)
    return draw(mutated(gzip.compress(kind.seed, mtime=0)))


def check_rows(content: bytes, name: str, chosen: Settings) -> bool:
    """Whether it was accepted, with the rows that are there; a refusal is one line and leaves nothing."""
    kind = KINDS[name]
    with TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        (folder / "in").write_bytes(content)
        refusal = None
        try:
            config = PreprocessConfig(format=name.split()[-1], **chosen)  # type: ignore[arg-type]
            manifest = preprocess(config, [str(folder / "in")], folder / "out", folder / "report.html")
        except (InvalidRecords, InvalidConfig) as error:
            refusal = str(error)
        if refusal is not None:
            assert refusal.isprintable()
            assert sorted(path.name for path in folder.iterdir()) == ["in"]
            return False
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        [source] = manifest.sources
        assert manifest.train.examples + manifest.validation.examples == source.rows
        if kind.counts_rejects or not source.rejected:
            assert source.rows + sum(source.rejected.values()) == kind.rows(content, chosen)
        assert verify_dataset(folder / "out", 1)[1].count == 0
        return True


@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("name", KINDS)
def test_mutated_input_is_refused_in_one_line_or_counted_right(name: str) -> None:
    outcomes = {True: 0, False: 0}

    # A few at a time: each call draws others when it is random, and hypothesis forgets them.
    @settings(max_examples=50, derandomize=not SECONDS, suppress_health_check=list(HealthCheck))
    @given(content=inputs(KINDS[name]), chosen=st.sampled_from(KINDS[name].settings))
    def check(content: bytes, chosen: Settings) -> None:
        outcomes[check_rows(content, name, chosen)] += 1

    deadline = time.monotonic() + SECONDS / len(KINDS)
    check()
    while time.monotonic() < deadline:
        check()
    print(f"{name}: {outcomes[True]} accepted, {outcomes[False]} refused")
    assert min(outcomes.values()) > 0
