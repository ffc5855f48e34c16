"""What a wrong file or line looks like, so that a refusal can name it. Nothing is read differently because of a guess."""

import re
import struct

from components.framing import masked_crc

_FILES = (
    (b"\xff\xfe\x00\x00", "UTF-32 text, convert it to UTF-8"),
    (b"\xff\xfe", "UTF-16 text, convert it to UTF-8"),
    (b"\xfe\xff", "UTF-16 text, convert it to UTF-8"),
    (b"\x1f\x8b", "gzip inside gzip, decompress it once"),
    (b"BZh", "bzip2-compressed, decompress it first"),
    (b"\xfd7zXZ\0", "xz-compressed, decompress it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed, decompress it first"),
    (b"\x04\x22\x4d\x18", "lz4-compressed, decompress it first"),
    (b"PK\x03\x04", "a zip archive, unpack it first"),
    (b"PAR1", "a Parquet file"),
    (b"ORC", "an ORC file"),
    (b"Obj\x01", "an Avro file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"SQLite", "an SQLite file"),
    (b"version https://git-lfs", "a pointer of Git LFS, fetch the file that it stands for"),
    (b"<", "an HTML or XML page, perhaps the error message of a download"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)
_NUMBER = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_LIBSVM = re.compile(rb"[+-]?[0-9]+:" + _NUMBER)
_LIBFFM = re.compile(rb"[+-]?[0-9]+:[+-]?[0-9]+:" + _NUMBER)
_WORD = re.compile(rb"[A-Za-z_][A-Za-z_0-9]*")


def shown(token: bytes) -> str:
    """A token as a message prints it: on one line, quoted, and cut where it is long."""
    text = token[:40].decode(errors="backslashreplace")
    return repr(text) + (f"... ({len(token)} bytes)" if len(token) > 40 else "")


def kind_of_file(head: bytes) -> str:
    """What the first bytes of a file say, when that is not text of rows; otherwise empty."""
    if len(head) >= 12 and struct.unpack("<I", head[8:12])[0] == masked_crc(head[:8]):
        return "a TFRecord file, use --format tfrecord"
    if len(head) > 262 and head[257:262] == b"ustar":
        return "a tar archive, unpack it first"
    return next((kind for magic, kind in _FILES if head.startswith(magic)), "")


def kind_of_line(line: bytes) -> str:
    """What a line of text looks like; empty when it looks like nothing that has a name."""
    tokens = line.split()
    tabs = line.count(b"\t")
    if not tokens:
        return ""
    if any(token.startswith(b"qid:") for token in tokens[1:2]):
        return "LibSVM with query ids (qid), which click data do not have"
    if len(tokens) > 1 and _LIBFFM.fullmatch(tokens[1]):
        return "LibFFM (label field:id:value)"
    if len(tokens) > 1 and _LIBSVM.fullmatch(tokens[1]):
        return "LibSVM (label id:value), use --format libsvm"
    if tabs >= 13:
        header = _WORD.fullmatch(tokens[0]) and (tokens[0].lower() in (b"label", b"click", b"y") or b"I1" in tokens)
        return "a header line, remove it" if header else "raw Criteo TSV, use --format criteo"
    if line.count(b",") >= 2:
        return "CSV"
    if b"|" in tokens or any(token.startswith(b"|") for token in tokens):
        return "Vowpal Wabbit"
    return ""


def looks_like(line: bytes, but_not: str) -> str:
    """The end of a refusal that names the kind of a line; empty when that is unknown or the declared one anyway."""
    kind = kind_of_line(line)
    return f"; this looks like {kind}" if kind and not kind.startswith(but_not) else ""
