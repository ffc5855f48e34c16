"""evaluation.json: what evaluate found out about a model, and what promote decides by."""

from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from components.distributions import TrainingData
from components.documents import parse_json, wrong_value
from components.drift import Drift
from components.errors import NotPromotable
from components.storage import write_json_atomic

FORMAT_VERSION = 1
EVALUATION_JSON = "evaluation.json"
Part = TypeVar("Part")


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """A tenth of the rows in order of prediction: mean prediction against observed click rate."""

    predicted: float
    observed: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class ScoreBin:
    """Rows whose score is at least `low` and below `high`; the last bin has `high`, too."""

    low: float
    high: float
    positives: int
    negatives: int


@dataclass(frozen=True, kw_only=True)
class ChampionScore:
    """The champion in force, on the same rows. None where it could not be measured, and `auc_reason` says why.

    Differences are the new model's figure minus the champion's, row by row the same rows: the new model is better where that of AUC
    is above zero, and that of log loss below. `_low` and `_high` are the ends of their intervals at the evaluation's `confidence`.
    `p_value` is how often two models that rank equally well would be so far apart in AUC, in this direction.
    """

    version: int
    auc: float | None
    auc_reason: str
    log_loss: float | None
    auc_difference: float | None
    auc_low: float | None = None
    auc_high: float | None = None
    p_value: float | None = None
    log_loss_difference: float | None = None
    log_loss_low: float | None = None
    log_loss_high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Slice:
    """The rows in which a field has one value; `value` is empty for all that are not among the values listed.

    `predicted` is the mean prediction, beside the `click_rate` that was observed.
    """

    field: str
    value: str
    rows: int
    positives: int
    click_rate: float
    predicted: float
    auc: float | None
    auc_reason: str
    log_loss: float


@dataclass(frozen=True, kw_only=True)
class SampledRow:
    """A row of the split, and the probability that evaluation got for it: what the saved model must give again."""

    ids: tuple[int, ...]
    values: tuple[float, ...]
    score: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The whole document. A metric of None is undefined, and its reason says why; losses in nats a row.

    `calibration_ratio` is the mean prediction over the observed click rate, both of the whole traffic: 1 is right, 1.1 too high by
    a tenth; None without a click. `average_precision` is None without one, too. `training_data` is what later days are compared
    with if this model becomes the champion; `drift` is that of its training rows against the champion's of now.
    """

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
    confidence: float = 0.95
    calibration_ratio: float | None = None
    average_precision: float | None = None
    roc_thresholds: tuple[float, ...] = ()
    precision_recall: tuple[tuple[float, float], ...] = ()
    score_histogram: tuple[ScoreBin, ...] = ()
    slices: tuple[Slice, ...] = ()
    sample: tuple[SampledRow, ...] = ()
    training_data: TrainingData | None = None
    drift: Drift | None = None


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
    return parse_evaluation(path.read_bytes(), str(path))


def parse_evaluation(text: str | bytes, place: str) -> Evaluation:
    """The document of a text.

    Raises:
        NotPromotable: damaged, or of another version.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise NotPromotable(f"{place}: not valid JSON ({error}); evaluate again") from error
    if not isinstance(document, dict) or document.get("format_version") != FORMAT_VERSION:
        raise NotPromotable(f"{place}: format_version {FORMAT_VERSION} is expected; evaluate again")
    try:
        evaluation = _part(Evaluation, document, place)
    except (AttributeError, TypeError, ValueError) as error:
        raise NotPromotable(f"{place}: damaged ({error}); evaluate again") from error
    if wrong := wrong_value(Evaluation, evaluation, "the document"):
        raise NotPromotable(f"{place}: {wrong}; evaluate again")
    return evaluation


def _part(kind: type[Part], document: dict[str, Any], place: str) -> Part:
    """A dataclass from its JSON object; refuses missing and unknown keys by name.

    What an older release did not write has its default.
    """
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    optional = {field.name for field in fields(kind) if field.default is not MISSING}  # type: ignore[arg-type]
    if wrong := (known - optional - document.keys()) | (document.keys() - known):
        raise NotPromotable(f"{place}: missing or unknown keys: {', '.join(sorted(wrong))}; evaluate again")
    types = get_type_hints(kind)
    return kind(**{name: _value(types[name], value, f"{place}: {name}") for name, value in document.items()})


def _value(declared: Any, value: Any, place: str) -> Any:
    """JSON's lists and objects as the tuples and dataclasses that are declared; anything else as it is."""
    if isinstance(declared, type) and is_dataclass(declared):
        return _part(declared, value, place)
    if declared in (int, float) and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise NotPromotable(f"{place} is {value!r}, a number is expected; evaluate again")
    kinds = get_args(declared)
    if get_origin(declared) is UnionType and value is not None:
        return _value(next(kind for kind in kinds if kind is not NoneType), value, place)
    if get_origin(declared) is tuple and isinstance(value, list):
        each = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(_value(kind, item, place) for kind, item in zip(each, value, strict=True))
    return value
