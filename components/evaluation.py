"""evaluation.json: what evaluate found out about a model, and what promote decides by."""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar

from components.documents import read_json, wrong_value
from components.errors import NotPromotable
from components.storage import write_json_atomic

FORMAT_VERSION = 1
Part = TypeVar("Part")
# Python types that JSON's numbers may have for each declared type; other types are checked where they are taken apart.
_NUMBERS: dict[Any, tuple[type, ...]] = {int: (int,), float: (int, float), float | None: (int, float, NoneType)}


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """A tenth of the rows in order of prediction: mean prediction against observed click rate."""

    predicted: float
    observed: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class ChampionScore:
    """The champion in force, on the same rows. None where it could not be measured, and `auc_reason` says why.

    `auc_difference` is the new model's AUC minus the champion's.
    """

    version: int
    auc: float | None
    auc_reason: str
    log_loss: float | None
    auc_difference: float | None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The whole document. A metric of None is undefined, and its reason says why; losses in nats a row."""

    format_version: int = FORMAT_VERSION
    rows: int
    positives: int
    click_rate: float
    auc: float | None
    auc_reason: str
    log_loss: float | None
    log_loss_reason: str
    normalized_entropy: float | None
    constant_log_loss: float
    model_digest: str
    data_digest: str
    champion: ChampionScore | None
    warnings: tuple[str, ...]
    roc: tuple[tuple[float, float], ...]
    calibration: tuple[CalibrationBin, ...]


def write_evaluation(path: Path, evaluation: Evaluation) -> None:
    """Written atomically; an undefined metric is null, never NaN."""
    write_json_atomic(path, asdict(evaluation))


def read_evaluation(path: Path) -> Evaluation:
    """The document at `path`.

    Raises:
        NotPromotable: missing, damaged, or of another version.
    """
    if not path.is_file():
        raise NotPromotable(f"{path}: no such file; make it with ctrflow evaluate")
    try:
        document = read_json(path)
    except ValueError as error:
        raise NotPromotable(f"{path}: not valid JSON ({error}); evaluate again") from error
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise NotPromotable(f"{path}: format_version {FORMAT_VERSION} is expected; evaluate again")
    champion = document.get("champion")
    try:
        evaluation = _part(
            Evaluation,
            {
                **document,
                "champion": None if champion is None else _part(ChampionScore, champion, f"{path}: champion"),
                "warnings": tuple(document.get("warnings", ())),
                "roc": tuple((float(x), float(y)) for x, y in document.get("roc", ())),
                "calibration": tuple(
                    _part(CalibrationBin, part, f"{path}: calibration") for part in document.get("calibration", ())
                ),
            },
            str(path),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise NotPromotable(f"{path}: damaged ({error}); evaluate again") from error
    if wrong := wrong_value(Evaluation, evaluation, "the document"):
        raise NotPromotable(f"{path}: {wrong}; evaluate again")
    return evaluation


def _part(kind: type[Part], document: dict[str, Any], place: str) -> Part:
    """A dataclass from its JSON object; refuses missing and unknown keys, and what is no number where one is due, by name."""
    known = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
    if known.keys() != document.keys():
        wrong = ", ".join(sorted(known.keys() ^ document.keys()))
        raise NotPromotable(f"{place}: missing or unknown keys: {wrong}; evaluate again")
    for name, value in document.items():
        allowed = _NUMBERS.get(known[name])
        if allowed and (not isinstance(value, allowed) or isinstance(value, bool)):
            raise NotPromotable(f"{place}: {name} is {value!r}, a number is expected; evaluate again")
    return kind(**document)
