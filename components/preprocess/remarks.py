"""What a person should know of rows that were taken: the warnings of manifest, report and log."""

from collections import Counter
from collections.abc import Sequence

from components.manifest import Source, Split, SplitName
from components.preprocess.codes import LARGE
from components.preprocess.config import PreprocessConfig
from components.preprocess.tally import Tally

# Fields that a warning names.
_NAMED_FIELDS = 10


def dataset_warnings(config: PreprocessConfig, sources: Sequence[Source], tally: Tally, feature_size: int) -> list[str]:
    """What a person should know of rows that were taken."""
    warnings = _repeated_sources(sources)
    # Ids that were made here say nothing.
    if config.holds_ids and config.id_base == 0 and tally.smallest_id == 1:
        warnings.append("the smallest id is 1: if the ids of this source start at 1, give --id-base 1")
    if tally.repeated:
        warnings.append(f"{tally.repeated} rows hold an id more than once; it counts once for each field")
    if config.format == "libffm" and not config.field_size:
        warnings.append("field_size was taken from the first rows; give --field-size to keep it the same from day to day")
    if tally.unseen:
        warnings.append(f"{tally.unseen} cells hold a token that is rare in training rows or does not stand there")
    if config.holds_ids and not config.feature_size:
        warnings.append(
            f"feature_size {feature_size} was taken from the largest id of this data; "
            "give --feature-size to keep it the same from day to day"
        )
    warnings += _value_warnings(config, tally)
    if tally.completed:
        warnings.append(f"{tally.completed} rows had fewer than 40 columns; the cells at their end were taken as missing")
    if skipped := sum((Counter(source.rejected) for source in sources), Counter[str]()):
        kinds = ", ".join(f"{count} {reason}" for reason, count in sorted(skipped.items()))
        warnings.append(f"{skipped.total()} bad rows were skipped ({kinds})")
    return warnings


def _value_warnings(config: PreprocessConfig, tally: Tally) -> list[str]:
    """What is wrong with values by their look. An embedding is multiplied with the value, so that large ones drown all others."""
    # Values that were made here are no codes.
    if config.holds_ids and (fields := tally.codes.fields()):
        named = ", ".join(map(str, fields[:_NAMED_FIELDS])) + (" ..." if len(fields) > _NAMED_FIELDS else "")
        return [
            f"values of {len(fields)} field{'s' * (len(fields) > 1)} ({named}) look like category codes, many different whole "
            f"numbers from {LARGE:g} on; a code belongs into the id, with value 1, and numbers are scaled, such as by log"
        ]
    if max(-tally.smallest_value, tally.largest_value) > LARGE:
        return [
            f"values are from {tally.smallest_value:g} to {tally.largest_value:g}: what is beyond {LARGE:g} drowns all other "
            "fields of its row; scale numbers, such as by log"
        ]
    return []


def _repeated_sources(sources: Sequence[Source]) -> list[str]:
    """A sentence for every file that is a copy of an earlier one."""
    first: dict[str, str] = {}
    return [
        f"{source.path} is a copy of {first[source.sha256]}: its rows count twice and may stand in both splits"
        for source in sources
        if first.setdefault(source.sha256, source.path) != source.path
    ]


def one_class_warnings(splits: dict[SplitName, Split]) -> list[str]:
    return [
        f"the {name} split has only {'positive' if part.positives else 'negative'} rows ({part.examples}): AUC is undefined on it"
        for name, part in splits.items()
        if part.positives in (0, part.examples)
    ]
