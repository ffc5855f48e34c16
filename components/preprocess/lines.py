"""Text inputs: which files (or objects in S3) an argument means, and their lines with numbers.

A line ends with LF or CRLF; a byte order mark and blank lines at the end are not data; gzip is recognised by its first bytes,
whatever the name says.
"""

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import InvalidRecords
from components.preprocess.chunks import Chunk, byte_problem, text_chunks
from components.preprocess.staging import Input
from components.storage import S3Object, is_marker


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Consecutive lines of a file without their ends, blank ones included; `first` is the number of the first one."""

    first: int
    texts: list[bytes]

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        return enumerate(self.texts, self.first)


def _folder_files(folder: Path) -> list[Path]:
    entries = sorted(entry for entry in folder.iterdir() if not is_marker(entry.name))
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


def _files_of(argument: str) -> Sequence[Input]:
    """The files of one argument, or objects.

    Raises:
        InvalidRecords: it names nothing.
        InvalidConfig: S3 cannot be asked.
        OSError: a folder that may not be listed.
    """
    if argument.startswith("s3://"):
        # Only here, because boto3 takes longer to load than a small file to read.
        from components.s3 import find_objects

        return find_objects(argument)
    if "://" in argument:
        raise InvalidRecords(f"{argument}: only local paths and s3:// are read; copy the files to one of them first")
    path = Path(argument)
    if argument and path.is_dir():
        return _folder_files(path)
    if path.is_file():
        return [path]
    if path.exists() and argument:
        raise InvalidRecords(f"{argument}: neither a regular file nor a folder")
    matches = map(Path, glob.glob(argument, recursive=True))
    found = sorted(path for path in matches if path.is_file() and not is_marker(path.name))
    if not found:
        none = ", and no file matches it" if glob.has_magic(argument) else ""
        raise InvalidRecords(f"{argument or repr(argument)}: no such file{none}")
    return found


def input_files(arguments: Sequence[str]) -> list[Input]:
    """The files that paths, folders and globs name, local or s3://, each once, in sorted order within an argument.

    Raises:
        InvalidRecords: an argument names nothing, or a file is empty or may not be read.
        InvalidConfig: S3 cannot be asked.
    """
    files: dict[str, Input] = {}
    for argument in arguments:
        try:
            for file in _files_of(argument):
                if isinstance(file, S3Object):
                    name, size, identity = file.uri, file.size, file.uri
                else:
                    name, size, identity = str(file), file.stat().st_size, str(file.resolve())
                if size == 0:
                    raise InvalidRecords(f"{name}: the file is empty (0 bytes); remove it or send it again")
                files.setdefault(identity, file)
        except OSError as error:
            raise InvalidRecords(f"{argument}: cannot be read ({error.strerror})") from error
    if not files:
        raise InvalidRecords("no input given; name a file, a folder or a glob")
    return list(files.values())


def clean(text: bytes) -> bytes:
    """Lines of a chunk with LF at their ends; carriage returns that end no line stay."""
    return text.replace(b"\r\n", b"\n").removesuffix(b"\r") if b"\r" in text else text


def split_lines(chunk: Chunk) -> Lines:
    """The lines of a chunk."""
    return Lines(first=chunk.first, texts=clean(chunk.data).removesuffix(b"\n").split(b"\n"))


def read_lines(path: Path) -> Iterator[Lines]:
    """The lines of a text file, some megabytes at a time; gzip is decompressed.

    Raises:
        InvalidRecords: a truncated or damaged gzip stream; a file that is not text; carriage returns that end no line.
        OSError: the file cannot be opened or read.
    """
    for chunk in text_chunks(path):
        lines = split_lines(chunk)
        if b"\r" in clean(chunk.data) or b"\0" in chunk.data:
            for number, line in lines.numbered():
                if problem := byte_problem(line, alone=lines.texts == [line] and number == 1):
                    yield Lines(first=lines.first, texts=lines.texts[: number - lines.first])
                    raise InvalidRecords(f"{path}, line {number}: {problem}")
        yield lines
