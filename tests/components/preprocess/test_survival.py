"""Any table of valid rows survives from text to the arrays that are trained on, in every encoding; written and read by others."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.examples import encode_example
from components.framing import frame
from components.manifest import Manifest, read_split
from components.preprocess.config import PreprocessConfig
from components.preprocess.step import preprocess
from components.records import ENCODINGS, Encoding
from components.train.program.channels import Channels
from components.train.program.config import TrainConfig
from components.train.program.container import Container
from components.train.program.division import Share, divide
from components.train.program.input import batches, find_source, read_files

# label, ids, values
Row = tuple[float, tuple[int, ...], tuple[float, ...]]
FEATURES = 2**31 - 1


def as_rows(parts: Iterable[Any]) -> list[Row]:
    return [(float(a), tuple(map(int, b)), tuple(map(float, c))) for part in parts for a, b, c in zip(*part, strict=True)]


def trained_on(folder: Path, manifest: Manifest) -> list[Row]:
    """One epoch as the program of a training container reads it."""
    container = Container(base=folder / "host", hosts=("algo-1",), current_host="algo-1", network_interface="lo")
    (container.data / "manifest").mkdir(parents=True)
    (container.data / "manifest/manifest.json").symlink_to(folder / "dataset/manifest.json")
    (container.data / "train").symlink_to(folder / "dataset/train")
    config, rows = TrainConfig(batch_size=1), manifest.train.examples
    source, _, _ = find_source(container, config, Channels(names=("train",), input_mode="File", by_host=False), 0)
    whole = divide([Share(place="algo-1", shards=tuple(range(len(source.files))), rows=rows, readers=1, index=0)], config, 0, rows)
    return as_rows(batches(read_files(source.files, source.encoding), source, whole, 1).as_numpy_iterator())


def survivors(content: bytes, **options: Any) -> list[Row]:
    """All rows of a dataset of this input: those to train on as the program reads them, those to validate on as evaluation does."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").write_bytes(content)
        config = PreprocessConfig(**{"validation_fraction": 0.3, "shards": 2, **options})
        manifest = preprocess(config, [str(folder / "in")], folder / "dataset", folder / "report.html")
        held = read_split(folder / "dataset", manifest, "validation")
        return sorted([*trained_on(folder, manifest), *as_rows((b.labels, b.ids, b.values) for b in held)])


FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn) -> list[Row]:
    """Rows of one width."""
    fields = draw(st.integers(1, 4))
    ids = st.lists(st.integers(0, FEATURES - 1), min_size=fields, max_size=fields, unique=True).map(tuple)
    values = st.lists(FLOAT32, min_size=fields, max_size=fields).map(tuple)
    return draw(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), ids, values), min_size=2, max_size=6))


def libsvm(rows: Sequence[Row]) -> bytes:
    lines = (" ".join([f"{label:g}", *(f"{i}:{v!r}" for i, v in zip(ids, values, strict=True))]) for label, ids, values in rows)
    return "\n".join(lines).encode()


def libffm(rows: Sequence[Row]) -> bytes:
    """Pairs from the last field to the first."""
    lines = []
    for label, ids, values in rows:
        pairs = [f"{field}:{i}:{v!r}" for field, (i, v) in enumerate(zip(ids, values, strict=True))]
        lines.append(" ".join([f"{label:g}", *reversed(pairs)]))
    return "\r\n".join(lines).encode()


def records(rows: Sequence[Row]) -> bytes:
    return b"".join(frame(encode_example(label, np.array(ids), np.float32(values))) for label, ids, values in rows)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("source_format", "write"), [("libsvm", libsvm), ("libffm", libffm), ("tfrecord", records)])
def test_rows_of_ids_and_values_survive(encoding: Encoding, source_format: str, write: Callable[[Sequence[Row]], bytes]) -> None:
    @settings(max_examples=8)
    @given(rows=tables())
    def check(rows: list[Row]) -> None:
        field_size = len(rows[0][1])
        options = {"format": source_format, "encoding": encoding, "field_size": field_size, "feature_size": FEATURES}
        assert survivors(write(rows), **options) == sorted(rows)

    check()


# click, price, country, tags; None where a cell is missing.
Cells = tuple[int, float | None, str | None, tuple[str, ...]]
TOKEN = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="|"), min_size=1, max_size=5)
CELLS = st.tuples(st.integers(0, 1), st.none() | FLOAT32, st.none() | TOKEN, st.lists(TOKEN, max_size=2).map(tuple))
COLUMNS = "label=click; numeric=number,price; categorical=country; multi_valued=tags:|:2"
HEADER = ("click", "number", "price", "country", "tags")


def as_csv(rows: Sequence[Cells]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(HEADER)
    for number, (click, price, country, tags) in enumerate(rows):
        writer.writerow((click, number, "" if price is None else repr(price), country, "|".join(tags)))
    return text.getvalue().encode()


def as_parquet(rows: Sequence[Cells]) -> bytes:
    click, price, country, tags = zip(*rows, strict=True)
    text = pa.string()
    columns = [click, range(len(rows)), pa.array(price, pa.float32()), pa.array(country, text), pa.array(tags, pa.list_(text))]
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.table(dict(zip(HEADER, map(pa.array, columns), strict=True))), sink)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("source_format", "write"), [("csv", as_csv), ("parquet", as_parquet)])
def test_cells_of_columns_survive(encoding: Encoding, source_format: str, write: Callable[[Sequence[Cells]], bytes]) -> None:
    """The logarithm of a number, 1 for a token and for what is missing; what is equal has one id, and what is not has two."""

    @settings(max_examples=8)
    @given(rows=st.lists(CELLS, min_size=2, max_size=6))
    def check(rows: list[Cells]) -> None:
        found = survivors(write(rows), format=source_format, encoding=encoding, columns=COLUMNS)
        meanings: dict[tuple[str, object], int] = {}
        # The number of a row, whose logarithm is its first value, says which one it was before the shuffle.
        by_number = {round(np.expm1(row[2][0])): row for row in found}
        assert sorted(by_number) == list(range(len(rows)))
        for number, (click, price, country, tags) in enumerate(rows):
            label, ids, values = by_number[number]
            logarithm = 1.0 if price is None else np.sign(price) * np.log1p(abs(price))
            np.testing.assert_allclose(values, [np.log1p(number), logarithm, 1, 1, len(tags) == 2], rtol=1e-6)
            assert label == click
            cells = [("number", ""), ("price", price is None), ("country", country), ("tags", tags[0] if tags else None)]
            for cell, place in [*zip(cells, ids[:4], strict=True), *([(("tags", tags[1]), ids[4])] if len(tags) == 2 else [])]:
                assert meanings.setdefault(cell, place) == place
        assert len(set(meanings.values())) == len(meanings)

    check()
