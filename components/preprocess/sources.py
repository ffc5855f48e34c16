"""Whether the input of a dataset is that of the dataset it replaces: told by digests, not by names and dates."""

import logging
from collections.abc import Sequence
from pathlib import Path

from components.errors import InvalidRecords
from components.manifest import MANIFEST, Source, read_manifest

log = logging.getLogger(__name__)

NAMED = 3


def former_sources(out: Path) -> tuple[Source, ...] | None:
    """What the dataset that will be replaced was made from; None where there is none, or one that cannot be read."""
    if not (out / MANIFEST).is_file():
        return None
    try:
        return read_manifest(out).sources
    except InvalidRecords as error:
        log.warning("the dataset that this one replaces is not compared with it: %s", error)
        return None


def source_changes(former: Sequence[Source], found: Sequence[Source]) -> str:
    """How the input differs from that of the former dataset of the same name, as one sentence; empty when it does not."""
    before, now = {source.path: source.sha256 for source in former}, {source.path: source.sha256 for source in found}
    changed = [path for path in now if path in before and now[path] != before[path]]
    new, gone = [path for path in now if path not in before], [path for path in before if path not in now]
    if sorted(before.values()) == sorted(now.values()) and not changed:
        # Rows are numbered by the order of files, and with it the shuffle changes.
        same = [source.sha256 for source in former] == [source.sha256 for source in found]
        return "" if same else "the files are those of the dataset that this one replaces, in another order: its splits differ"
    parts = [
        f"{len(paths)} {word} ({_names(paths)})" for word, paths in (("changed", changed), ("new", new), ("gone", gone)) if paths
    ]
    return f"the input differs from that of the dataset that this one replaces: {', '.join(parts)}"


def _names(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(paths[:NAMED]) + more
