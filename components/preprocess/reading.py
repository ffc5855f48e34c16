"""The files of an input, opened in the way of their format."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from components.errors import InvalidRecords
from components.examples import peek_field_size
from components.preprocess.chunks import Chunk, record_chunks, text_chunks
from components.preprocess.config import PreprocessConfig
from components.preprocess.libffm import peek_fields
from components.preprocess.libsvm import peek_pairs
from components.preprocess.tables import Table
from components.preprocess.worker import Format


@contextmanager
def readable(*paths: Path) -> Iterator[None]:
    """The one of some files that fails while it is read is named as a user knows it."""
    try:
        yield
    except OSError as error:
        known = {os.fspath(path): path for path in paths}
        place = known.get(error.filename, error.filename or paths[0])
        raise InvalidRecords(f"{place}: cannot be read ({error.strerror or error})") from error


def field_size_of(source_format: Format, path: Path, field_base: int) -> int:
    """Fields of a row, from the first rows of the first file."""
    if source_format == "libffm":
        return peek_fields(path, field_base)
    return peek_pairs(path) if source_format == "libsvm" else peek_field_size(path)


def check_rejects(config: PreprocessConfig, first: str, fatal: str, bad: int) -> None:
    """Stop at what may not be skipped.

    Args:
        first: the sentence about the first bad row of a chunk, empty when there is none. fatal: why nothing can be read after it.
        bad: bad rows so far.
    """
    if first and config.on_bad_row == "stop":
        raise InvalidRecords(first)
    if first and bad > config.max_bad_rows:
        raise InvalidRecords(f"{bad} bad rows, at most {config.max_bad_rows} may be skipped (--max-bad-rows); {first}")
    if fatal:
        raise InvalidRecords(fatal)


def file_chunks(source_format: Format, table: Table | None, path: Path, file_index: int) -> Iterator[Chunk]:
    """The chunks of one file.

    Raises:
        InvalidRecords: a file that is damaged, of another kind, or may not be read; after the chunks before that.
    """
    read = table.chunks if table else record_chunks if source_format == "tfrecord" else text_chunks
    with readable(path):
        yield from read(path, file_index)


def chunks_of(source_format: Format, files: Sequence[Path], table: Table | None) -> Iterator[Chunk]:
    for file_index, path in enumerate(files):
        yield from file_chunks(source_format, table, path, file_index)
