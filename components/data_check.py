"""Whether a day's data are fit to train on, by what the champion was trained on: asked right after preprocess.

check_data(DataLimits(), Path("dataset"), Path("models"), "deepfm")
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from components.champion import Champion, check_champion, version_folder
from components.distributions import traffic_click_rate
from components.documents import settings_of_text
from components.drift import SHIFTED, Drift, drift_of
from components.errors import InvalidConfig, InvalidRecords
from components.evaluation import EVALUATION_JSON, parse_evaluation
from components.manifest import Manifest, read_manifest
from components.storage import open_storage

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DataLimits:
    """What a day's training rows must keep to.

    Attributes:
        least_rows: training rows, with or without a champion.
        least_share: of the champion's number of training rows. 0 asks for nothing.
        click_rate_factor: how many times the champion's click rate may be the day's, or the other way round.
        most_new_ids: share of ids that the champion never saw.
        most_shifted: share of fields whose population stability index is above 0.25. Not one field: a date changes every day.
    """

    least_rows: int = 2
    least_share: float = 0.6
    click_rate_factor: float = 3.0
    most_new_ids: float = 0.5
    most_shifted: float = 0.5

    def __post_init__(self) -> None:
        if self.least_rows < 0:
            raise InvalidConfig(f"least_rows {self.least_rows}: must not be negative")
        if not self.click_rate_factor >= 1.0:
            raise InvalidConfig(f"click_rate_factor {self.click_rate_factor}: at least 1 is needed")
        for name in ("least_share", "most_new_ids", "most_shifted"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise InvalidConfig(f"{name} {getattr(self, name)}: a share in 0..1 is expected")


def read_limits(text: str) -> DataLimits:
    """The limits of a JSON object of their fields; what is left out has its default.

    Raises:
        InvalidConfig: not JSON, an unknown key, or a value out of its range.
    """
    return settings_of_text(DataLimits, text, "data_limits", '{"least_share": 0.5}')


def champion_drift(dataset: Path, manifest: Manifest, store: Path | str, champion: Champion) -> Drift | None:
    """How far a dataset is from what the champion was trained on; None where it was evaluated before that was kept.

    Raises:
        InvalidRecords: a shard is missing or damaged.
        NotPromotable: the champion's evaluation is damaged.
    """
    storage = open_storage(store)
    file = f"{version_folder(champion.name, champion.version)}/{EVALUATION_JSON}"
    place, found = f"{storage.uri}/{file}", storage.read(file)
    data = parse_evaluation(found.text, place).training_data if found else None
    if data is None:
        log.warning("%s: does not say what champion version %d was trained on; drift is not known", place, champion.version)
        return None
    return drift_of(dataset, manifest, champion.version, data)


def check_data(limits: DataLimits, dataset: Path, store: Path | str, name: str) -> Drift | None:
    """Refuse data that no model should be trained on tonight; the champion stays.

    Returns:
        The drift against the champion's training data; None without a champion to compare with.
    Raises:
        InvalidRecords: too few rows, one class only, or rows unlike those that the champion was trained on, in one sentence.
        NotPromotable: a file of the champion is missing or damaged.
    """
    manifest = read_manifest(dataset)
    # A champion that is damaged is found before hours of training, not after them.
    champion = check_champion(store, name)
    drift = champion_drift(dataset, manifest, store, champion) if champion else None
    if problem := _broken(limits, manifest) or (_unlike(limits, drift) if drift else ""):
        stays = f"; champion version {drift.champion_version} stays" if drift else ""
        raise InvalidRecords(f"{dataset}: {problem}{stays}; look at the day's files, or change --data-limits")
    return drift


def _broken(limits: DataLimits, manifest: Manifest) -> str:
    split = manifest.train
    if split.examples < limits.least_rows:
        return f"{split.examples:,} training rows, {limits.least_rows:,} are the least"
    if traffic_click_rate(manifest) in (0.0, 1.0):
        return f"training rows are of one class ({split.positives:,} clicks of {split.examples:,}), so that nothing can be learned"
    return ""


def _unlike(limits: DataLimits, drift: Drift) -> str:
    if drift.rows < limits.least_share * drift.champion_rows:
        share = f"{drift.rows / drift.champion_rows:.0%} of the champion's {drift.champion_rows:,}"
        return f"{drift.rows:,} training rows, {share}; {limits.least_share:.0%} is the least"
    low, high = sorted((drift.click_rate, drift.champion_click_rate))
    if high > limits.click_rate_factor * low:
        return (
            f"a click rate of {drift.click_rate:.3%}, the champion's data had {drift.champion_click_rate:.3%}; "
            f"a factor of {limits.click_rate_factor:g} is the most"
        )
    if drift.new_id_rate is not None and drift.new_id_rate > limits.most_new_ids:
        return f"{drift.new_id_rate:.0%} of the ids are new to the champion; {limits.most_new_ids:.0%} is the most"
    shifted = drift.shifted
    if len(shifted) > limits.most_shifted * max(len(drift.fields), 1):
        named = ", ".join(f"{field.field} {field.psi:.2f}" for field in shifted[:3])
        return (
            f"{len(shifted)} of {len(drift.fields)} fields have changed (stability index above {SHIFTED:g}: {named} ...); "
            f"{limits.most_shifted:.0%} of them is the most"
        )
    return ""
