"""Text inputs: line ends and compression make no difference, and what is not text of rows is called by its name."""

import gzip
from pathlib import Path

import pytest

from components.errors import InvalidRecords
from components.framing import frame
from components.preprocess.chunks import MAX_LINE_BYTES
from components.preprocess.lines import input_files, read_lines

TEXT = b"line one\nline two\n\nline four\n"


def lines_of(path: Path) -> list[tuple[int, bytes]]:
    return [numbered for lines in read_lines(path) for numbered in lines.numbered() if numbered[1]]


def refusal(path: Path) -> str:
    with pytest.raises(InvalidRecords) as caught:
        lines_of(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    return message.removeprefix(str(path))


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        TEXT.replace(b"\n", b"\r\n"),
        TEXT.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
        TEXT.removesuffix(b"\n"),
        b"\xef\xbb\xbf" + TEXT,
        TEXT + b"\n\n",
        gzip.compress(TEXT),
        gzip.compress(b"\xef") + gzip.compress(b"\xbb\xbfline one\r") + gzip.compress(b"\n") + gzip.compress(TEXT[9:]),
        gzip.compress(TEXT) + b"\0" * 512,
    ],
    ids=["lf", "crlf", "crlf, no end", "no end", "bom", "blank tail", "gzip", "gzip of members", "gzip, padded"],
)
def test_line_ends_marks_and_compression_make_no_difference(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").write_bytes(content)
    assert lines_of(tmp_path / "in") == [(1, b"line one"), (2, b"line two"), (4, b"line four")]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_are_whole_and_numbered_wherever_a_chunk_ends(tmp_path: Path, end: bytes) -> None:
    texts = [b"%d" % number * (number % 97 + 1) for number in range(1, 20_001)]
    (tmp_path / "in").write_bytes(end.join(texts))
    assert lines_of(tmp_path / "in") == list(enumerate(texts, 1))


def test_blanks_and_tabs_of_a_line_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"\ta \t\n \n")
    assert lines_of(tmp_path / "in") == [(1, b"\ta \t"), (2, b" ")]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(TEXT * 9000)[:-5], ": compressed file ended early after line"),
        (gzip.compress(TEXT)[:9], ": compressed file ended early after line 0"),
        (gzip.compress(TEXT)[:-8] + b"\0" * 8, ": damaged gzip data after line 4"),
        (gzip.compress(TEXT) + b"more", ": damaged gzip data after line 4"),
        (b"\x1f\x8b and nothing more", ": damaged gzip data after line 0"),
        (b"a\rb\rc\r", ", line 1: a carriage return inside the line (no line feed found, old Mac line ends?)"),
        (b"a\nb\rc\n", ", line 2: a carriage return inside the line (old Mac line ends?)"),
        (b"a\r\r\nb\n", ", line 1: a carriage return inside the line"),
        (b"a\nb\n\0\0\n", ", line 3: a NUL byte; this is not a text file"),
        (b"a" * (MAX_LINE_BYTES + 2), f", line 1: no line feed in {MAX_LINE_BYTES} bytes"),
        ("1 1:1\n".encode("utf-16"), ": not a text file of rows; this looks like UTF-16 text"),
        (gzip.compress(gzip.compress(TEXT)), ": not a text file of rows; this looks like gzip inside gzip"),
        (b"PAR1\x15\x04\x15", ": not a text file of rows; this looks like a Parquet file"),
        (b"version https://git-lfs.github.com/spec/v1\n", ": not a text file of rows; this looks like a pointer of Git LFS, fetch"),
        (b"PK\x03\x04\x14\0", ": not a text file of rows; this looks like a zip archive"),
        (b"\x28\xb5\x2f\xfd\x24", ": not a text file of rows; this looks like zstd-compressed"),
        (b"<Error><Code>AccessDenied</Code></Error>", ": not a text file of rows; this looks like an HTML or XML page"),
        (b'{"label": 1}\n', ": not a text file of rows; this looks like JSON"),
        (frame(b"some record"), ": not a text file of rows; this looks like a TFRecord file, use --format tfrecord"),
    ],
)
def test_what_is_not_text_of_rows_is_refused_by_name(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "in").write_bytes(content)
    assert refusal(tmp_path / "in").startswith(reason)


def test_lines_before_a_truncation_are_counted(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(gzip.compress(TEXT)[:-8])
    assert refusal(tmp_path / "in") == ": compressed file ended early after line 4; send it again"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.txt", "_SUCCESS", ".a.txt.crc", "deeper/c.txt"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(name)
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([""], ["a.txt", "b.txt"]),
        (["*"], ["a.txt", "b.txt"]),
        (["**/*.txt"], ["a.txt", "b.txt", "deeper/c.txt"]),
        (["b.txt", "a.txt"], ["b.txt", "a.txt"]),
        (["b.txt", "*", "../in/b.txt", "deeper"], ["b.txt", "a.txt", "deeper/c.txt"]),
        (["_SUCCESS"], ["_SUCCESS"]),
    ],
)
def test_files_folders_and_globs_name_each_file_once(folder: Path, arguments: list[str], names: list[str]) -> None:
    assert input_files([f"{folder}/{argument}" for argument in arguments]) == [folder / name for name in names]


def test_a_file_whose_name_looks_like_a_glob_is_found(tmp_path: Path) -> None:
    (tmp_path / "day[1].txt").write_text("1")
    assert input_files([str(tmp_path / "day[1].txt")]) == [tmp_path / "day[1].txt"]


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("absent.txt", "absent.txt: no such file"),
        ("*.csv", "*.csv: no such file, and no file matches it"),
        ("empty.txt", "empty.txt: the file is empty (0 bytes)"),
        ("void", "void: no files in this folder"),
        ("hidden", "hidden: no files in this folder; names that start with . or _ do not count"),
        ("nested", "nested/**/*' to read the folders in it"),
        ("links", "links/broken: a link to a file that does not exist"),
        ("dataset", "dataset: already a ctrflow dataset"),
        ("a.txt/b", "a.txt/b: no such file"),
        ("x" * 300, "cannot be read (File name too long)"),
    ],
)
def test_an_argument_that_names_no_data_is_refused(tmp_path: Path, argument: str, reason: str) -> None:
    for name in ("hidden/_SUCCESS", "nested/day=1/part-0", "dataset/manifest.json", "dataset/train/part-0", "a.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "void").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "links/broken").symlink_to(tmp_path / "gone")
    with pytest.raises(InvalidRecords) as caught:
        input_files([f"{tmp_path}/a.txt", f"{tmp_path}/{argument}"])
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [([], "no input given"), ([""], "no such file"), (["gs://bucket/day1"], "only local paths and s3:// are read")],
)
def test_no_path_at_all_is_refused(arguments: list[str], reason: str) -> None:
    with pytest.raises(InvalidRecords, match=reason):
        input_files(arguments)
