"""The settings of the step as one text, which a pipeline hands on: a JSON object of the fields of PreprocessConfig.

    {"format": "csv", "columns": "label=click; numeric=price", "fitting": {"categories": "vocabulary"}}

What is left out has its default. A text and not a structure of KFP's, whose numbers are all floating.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

from components.documents import settings_of
from components.errors import InvalidConfig
from components.preprocess.columns import Columns, columns_document, read_columns
from components.preprocess.config import CHAMPION, PreprocessConfig


def columns_text(columns: Columns) -> str:
    """Columns as a text that `read_columns` reads on any machine."""
    return json.dumps(columns_document(columns), ensure_ascii=False)


def settings_text(config: PreprocessConfig) -> str:
    """The settings for a step that runs elsewhere: what `columns` names is read now, for no other machine sees the user's file.

    The file of `transform` may be as large as a vocabulary, so only its whole path travels: it lies in a dataset or a model
    folder, which steps see.

    Raises:
        InvalidConfig: columns that cannot be read.
    """
    columns = columns_text(read_columns(config.columns)) if config.columns else ""
    given = config.transform
    transform = str(Path(given).absolute()) if given and given != CHAMPION and "://" not in given else given
    return json.dumps(asdict(replace(config, columns=columns, transform=transform)), ensure_ascii=False)


def read_settings(text: str) -> PreprocessConfig:
    """The settings of such a text.

    Raises:
        InvalidConfig: not JSON, an unknown key, a value of another type, or settings that do not go together.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f'preprocessing {text[:80]!r}: not JSON ({error}); such as {{"format": "criteo"}}') from error
    return settings_of(PreprocessConfig, document, "preprocessing")
