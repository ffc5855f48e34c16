"""transform.json beside a dataset or a model, as those see it who do not apply it (preprocess/transform_file.py does).

Its `encodes` is a digest of all that decides which ids and values a row gets, and of nothing else: two transforms that were fitted
on other days, and hash alike, have the same.
"""

from pathlib import Path

from components.documents import read_json
from components.errors import InvalidRecords

TRANSFORM = "transform.json"


def encoding_of(folder: Path) -> str | None:
    """What the transform of a dataset or model folder encodes; None where there is none, as where sources hold ids.

    Raises:
        InvalidRecords: damaged, or of an earlier release.
    """
    path = folder / TRANSFORM
    if not path.is_file():
        return None
    try:
        encodes = read_json(path)["encodes"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRecords(f"{path}: does not say what it encodes ({error!r}); preprocess again") from error
    if not isinstance(encodes, str):
        raise InvalidRecords(f"{path}: encodes {encodes!r} is no digest; preprocess again")
    return encodes
