"""Objects in S3 as files that readers open, and that everything that is said calls by their URI.

All objects are fetched before the first row is read: files of columns are read twice, and digests are of whole files.
"""

from collections.abc import Sequence
from pathlib import Path, PosixPath

from components.storage import S3Object

Input = Path | S3Object


class StagedFile(PosixPath):
    """A path that opens a file on scratch disk, and as a string is where the file came from.

    Readers name in messages what they were given, and manifest and report what was read: no place that says a name needs to know
    that a file was fetched, and none can tell a scratch folder that is gone when it is read. Paths that are made of this one are
    ordinary ones.
    """

    uri: str = ""

    def __str__(self) -> str:
        return self.uri or super().__str__()

    def __fspath__(self) -> str:
        return super().__str__()

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        # Chunks carry the path to other processes.
        return staged_file, (super().__str__(), self.uri)


def staged_file(path: str | Path, uri: str) -> StagedFile:
    file = StagedFile(path)
    file.uri = uri
    return file


def staged(inputs: Sequence[Input], scratch: Path) -> list[Path]:
    """Inputs as files, in their order; objects are fetched into a folder in `scratch`.

    Raises:
        InvalidConfig: the objects do not fit on the disk, or S3 cannot be asked.
        InvalidRecords: an object was replaced or removed since it was listed, or arrived damaged.
    """
    objects = [each for each in inputs if isinstance(each, S3Object)]
    if not objects:
        return [each for each in inputs if isinstance(each, Path)]
    # Only here, because worker processes import this module for the paths they get, and need no boto3.
    from components.s3_copies import fetch_objects

    fetched = iter(fetch_objects(objects, scratch / "inputs"))
    return [each if isinstance(each, Path) else staged_file(next(fetched), each.uri) for each in inputs]
