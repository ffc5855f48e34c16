"""Quotes of RFC 4180 in bytes: where records end, which quotes are legal, and the cells of one record."""

import numpy as np
from numpy.typing import NDArray

from components.preprocess.kinds import shown
from components.preprocess.parsed import Reason

FEED, QUOTE = 10, 34


class Refused(Exception):
    """Why a record is no row; carried to where its line is known."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(sentence)
        self.reason, self.sentence = reason, sentence


def record_ends(octets: NDArray[np.uint8], feeds: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Places of the line feeds that end a record: those with an even number of quotes before them."""
    feeds = np.flatnonzero(octets == FEED) if feeds is None else feeds
    quotes = np.flatnonzero(octets == QUOTE)
    return feeds if not len(quotes) else feeds[np.searchsorted(quotes, feeds) % 2 == 0]


def stray_quotes(text: bytes, separator: bytes) -> NDArray[np.int64]:
    """Places of the quotes that RFC 4180 does not know: opening inside a cell, closing before its end, or never closed."""
    octets = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(octets == QUOTE)
    borders = (separator[0], FEED, QUOTE)  # a quote beside a quote is one of a doubled pair
    opening, closing = quotes[0::2], quotes[1::2]
    unopened = opening[(opening > 0) & ~np.isin(octets[opening - 1], borders)]
    followed = closing[closing < len(text) - 1]
    unclosed = followed[~np.isin(octets[followed + 1], borders)]
    return np.sort(np.concatenate([unopened, unclosed, opening[len(closing) :]]))


def quotes_are_legal(text: bytes, separator: bytes) -> bool:
    return b'"' not in text or not len(stray_quotes(text, separator))


def cells_of(record: bytes, separator: bytes) -> list[bytes]:
    """The cells of one record without their quotes."""
    if b"\0" in record:
        raise Refused("NUL", "a NUL byte; this is not a text file")
    if b'"' in record and len(stray := stray_quotes(record, separator)):
        start = max(record.rfind(b"\n", 0, stray[0]) + 1, int(stray[0]) - 10)
        near = f"near {shown(record[start : start + 30].splitlines()[0])}"
        hint = "quote the whole cell and double the quotes in it"
        raise Refused("quotes", f"a quote that neither begins nor ends a cell, or is never closed, {near}; {hint}")
    cells: list[bytes] = []
    open_cell: list[bytes] = []
    is_open = False
    for piece in record.split(separator):
        open_cell.append(piece)
        is_open ^= piece.count(b'"') % 2 == 1
        if not is_open:
            cells.append(separator.join(open_cell))
            open_cell = []
    if any(b"\r" in cell and not cell.startswith(b'"') for cell in cells):
        raise Refused("carriage return", "a carriage return inside the line (old Mac line ends?); convert line ends to LF")
    return [cell[1:-1].replace(b'""', b'"') if cell.startswith(b'"') else cell for cell in cells]
