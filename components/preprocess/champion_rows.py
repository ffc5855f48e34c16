"""The champion's transform: for the rows of the day, where the settings ask for it, or for the same rows again, to compare with."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from components.champion import champion_file_text, read_champion
from components.preprocess.config import CHAMPION, PreprocessConfig
from components.preprocess.step import preprocess
from components.preprocess.transform_file import read_transform
from components.transforms import TRANSFORM, encoding_of, older_table


def by_champion(config: PreprocessConfig, store: Path | str, name: str, scratch: Path) -> PreprocessConfig:
    """The settings with the file of the champion's transform, if they say `champion`; without one, a transform is fitted anew.

    Args:
        scratch: an empty folder that the file is copied to, to be kept until the rows are made.
    """
    if config.transform != CHAMPION:
        return config
    found = _transform_of_champion(store, name, scratch)
    return replace(config, transform=str(found)) if found else replace(config, transform="", grow_to=0)


def champion_rows(
    config: PreprocessConfig, inputs: Sequence[str], dataset: Path, out: Path, store: Path | str, name: str, scratch: Path
) -> str:
    """Write the rows of `dataset` by the champion's transform to `out`, where nothing else makes the two comparable.

    Args:
        config, inputs: those that made `dataset`. scratch: an empty folder.
    Returns:
        Why there is no need, or no way; an empty text when it was written.
    """
    theirs = _transform_of_champion(store, name, scratch)
    if theirs is None:
        return "no champion, or none that has a transform"
    if not config.is_table:
        return "these rows came with ids, which no transform makes"
    encodes = encoding_of(scratch)
    if encodes == encoding_of(dataset) or older_table(dataset, encodes):
        return "the champion's transform is that of the dataset, or an older version of it"
    if not read_transform(theirs).fits(config.table_columns):
        return "the champion's transform is of other columns"
    preprocess(replace(config, transform=str(theirs), grow_to=0), inputs, out, scratch / "report.html")
    return ""


def _transform_of_champion(store: Path | str, name: str, scratch: Path) -> Path | None:
    champion = read_champion(store, name)
    text = champion_file_text(store, champion, TRANSFORM) if champion else None
    if text is None:
        return None
    (scratch / TRANSFORM).write_text(text, encoding="utf-8")
    return scratch / TRANSFORM
