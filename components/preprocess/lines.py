"""Text inputs: which files an argument means, and their lines with numbers.

A line ends with LF or CRLF; a byte order mark and blank lines at the end are not data; gzip is recognised by its first bytes,
whatever the name says.
"""

import glob
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import InvalidRecords
from components.preprocess.kinds import kind_of_file, shown

GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 18
# Enough to tell what kind of file it is; a gzip stream of several members may give fewer at first.
_OPENING_BYTES = 16
# A row of a click log has a few hundred bytes; without this a file with no line feed would be read into memory whole.
MAX_LINE_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Consecutive lines of a file without their ends, blank ones included; `first` is the number of the first one."""

    first: int
    texts: list[bytes]

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        return enumerate(self.texts, self.first)


def _is_data(path: Path) -> bool:
    """Not a marker such as _SUCCESS or a hidden file such as .part-0.crc."""
    return not path.name.startswith((".", "_"))


def _folder_files(folder: Path) -> list[Path]:
    entries = sorted(entry for entry in folder.iterdir() if _is_data(entry))
    for entry in entries:
        if entry.is_symlink() and not entry.exists():
            raise InvalidRecords(f"{entry}: a link to a file that does not exist; mend or remove it")
    files = [entry for entry in entries if entry.is_file()]
    if (folder / "manifest.json").is_file() and (folder / "train").is_dir():
        raise InvalidRecords(f"{folder}: already a ctrflow dataset; give the files that it was made from")
    if not files:
        folders = any(entry.is_dir() for entry in entries)
        hint = f"give '{folder}/**/*' to read the folders in it" if folders else "names that start with . or _ do not count"
        raise InvalidRecords(f"{folder}: no files in this folder; {hint}")
    return files


def _files_of(argument: str) -> list[Path]:
    """The files of one argument.

    Raises:
        InvalidRecords: it names nothing.
        OSError: a folder that may not be listed.
    """
    if "://" in argument:
        raise InvalidRecords(f"{argument}: only local paths are read; copy the files here first")
    path = Path(argument)
    if argument and path.is_dir():
        return _folder_files(path)
    if path.is_file():
        return [path]
    if path.exists() and argument:
        raise InvalidRecords(f"{argument}: neither a regular file nor a folder")
    found = sorted(Path(name) for name in glob.glob(argument, recursive=True) if Path(name).is_file() and _is_data(Path(name)))
    if not found:
        matches = ", and no file matches it" if glob.has_magic(argument) else ""
        raise InvalidRecords(f"{argument or repr(argument)}: no such file{matches}")
    return found


def input_files(arguments: Sequence[str]) -> list[Path]:
    """The files that paths, folders and globs name, each once, in sorted order within an argument.

    Raises:
        InvalidRecords: an argument names nothing, or a file is empty or may not be read.
    """
    files: dict[Path, Path] = {}
    for argument in arguments:
        try:
            for file in _files_of(argument):
                if file.stat().st_size == 0:
                    raise InvalidRecords(f"{file}: the file is empty (0 bytes); remove it or send it again")
                files.setdefault(file.resolve(), file)
        except OSError as error:
            raise InvalidRecords(f"{argument}: cannot be read ({error.strerror})") from error
    if not files:
        raise InvalidRecords("no input given; name a file, a folder or a glob")
    return list(files.values())


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_bytes(path: Path, lines: Lines) -> None:
    """Name the line with a byte that no text of rows has."""
    for number, line in lines.numbered():
        if b"\0" in line:
            raise InvalidRecords(f"{path}, line {number}: a NUL byte; this is not a text file")
        if b"\r" in line:
            hint = "no line feed found, old Mac line ends?" if lines.texts == [line] and number == 1 else "old Mac line ends?"
            raise InvalidRecords(f"{path}, line {number}: a carriage return inside the line ({hint}); convert line ends to LF")


def _split(path: Path, first: int, text: bytes) -> Lines:
    """Lines of whole lines of text; refuses carriage returns inside a line and NUL."""
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n").removesuffix(b"\r")
    lines = Lines(first=first, texts=text.split(b"\n"))
    if b"\r" in text or b"\0" in text:
        _refuse_bytes(path, lines)
    return lines


def _opening(path: Path, text: bytes) -> bytes:
    """The beginning of a file without its byte order mark; a file of another kind is named."""
    if kind := kind_of_file(text):
        raise InvalidRecords(f"{path}: not a text file of rows; this looks like {kind}")
    return text.removeprefix(BYTE_ORDER_MARK)


def _read_chunks(path: Path, file: io.BufferedReader | gzip.GzipFile) -> Iterator[Lines]:
    number, rest, opened = 1, b"", False
    # read1 gives what is there before it raises for a damaged stream, so that the line number is right.
    while chunk := file.read1(_CHUNK_BYTES):
        rest += chunk
        if not opened and len(rest) < _OPENING_BYTES:
            continue
        text, opened = rest if opened else _opening(path, rest), True
        whole, feed, rest = text.rpartition(b"\n")
        if feed:
            lines = _split(path, number, whole)
            number += len(lines.texts)
            yield lines
        if len(rest) > MAX_LINE_BYTES:
            _refuse_bytes(path, Lines(first=number, texts=[rest]))
            raise InvalidRecords(
                f"{path}, line {number}: no line feed in {MAX_LINE_BYTES} bytes; not a text file of rows, starts with {shown(rest)}"
            )
    if rest and not opened:
        rest = _opening(path, rest)
    if rest:
        yield _split(path, number, rest)


def read_lines(path: Path) -> Iterator[Lines]:
    """The lines of a text file, some hundred kilobytes at a time; gzip is decompressed.

    Raises:
        InvalidRecords: a truncated or damaged gzip stream; a file that is not text; carriage returns that end no line.
        OSError: the file cannot be opened or read.
    """
    with path.open("rb") as probe:
        compressed = probe.read(2) == GZIP_MAGIC
    last = 0
    try:
        with gzip.open(path) if compressed else path.open("rb") as file:
            for lines in _read_chunks(path, file):
                yield lines
                last = lines.first + len(lines.texts) - 1
    except EOFError as error:
        raise InvalidRecords(f"{path}: compressed file ended early after line {last}; send it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InvalidRecords(f"{path}: damaged gzip data after line {last} ({error}); send it again") from error
