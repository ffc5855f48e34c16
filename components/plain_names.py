"""Names that people give to models, runs and schedules. Each becomes a folder's name somewhere."""

import re

from components.errors import InvalidConfig

MOST = 63
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def check_plain(what: str, name: str, most: int = MOST) -> None:
    """Refuse a name that could lead to another folder.

    Args:
        what: the word for it in messages. most: how many characters it may have.
    Raises:
        InvalidConfig: it is no plain name.
    """
    if not _NAME.fullmatch(name) or len(name) > most:
        expected = f"1 to {most} letters, digits, dots, dashes or underscores, the first a letter or digit"
        raise InvalidConfig(f"{what} {name!r}: {expected}")
