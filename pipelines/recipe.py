"""A recipe: one file that says what a retraining is, on this machine and on a cluster.

    ctrflow init                     writes one with comments
    ctrflow run --recipe recipe.yaml --set learning.epochs=2

YAML by the core schema of YAML 1.2, so that 5e-4 is a number and no, 12:30 and 2026-01-01 are text; a key that is unknown or stands
twice is refused. Paths that are not absolute begin at the current folder, as those of options do.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import yaml

from components.champion import check_name
from components.data_check import DataLimits
from components.documents import settings_of
from components.errors import InvalidConfig
from components.instances import read_instances
from components.learning import require
from components.plan import STRATEGIES, ModelSettings, direct_plan
from components.preprocess.config import PreprocessConfig
from components.preprocess.settings import settings_text
from components.profile_utilization.step import ProfileConfig
from components.promote.policy import Policy
from components.promote.step import PromoteConfig
from components.run_dates import check_run_date, check_window
from components.select_strategy.limits import Limits
from components.select_strategy.step import SelectConfig
from components.storage import open_storage

Settings = TypeVar("Settings", "Recipe", ModelSettings)


@dataclass(frozen=True, kw_only=True)
class SageMaker:
    """Where and as whom training jobs run: execution role, region, instance type, and the s3:// prefix of their results."""

    role: str = ""
    region: str = ""
    instance_type: str = "ml.c7i.4xlarge"
    output_uri: str = ""

    def __post_init__(self) -> None:
        arn = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/.+")
        require(
            not self.role or bool(arn.fullmatch(self.role)), "role", self.role, "arn:aws:iam::<account>:role/<name> is expected"
        )
        require(not self.output_uri or self.output_uri.startswith("s3://"), "output_uri", self.output_uri, "s3:// is expected")


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where Kubeflow Pipelines is, and what a run there needs. Without a host KFP's own environment and configuration say it.

    Attributes:
        pipeline_root: s3:// prefix of artifacts. store: folder of the model store, as steps see it.
        steps_image, training_image: the two images under an immutable tag or digest; empty: the names that this version has.
        max_concurrency: scheduled runs at a time.
    """

    host: str = ""
    namespace: str = ""
    experiment: str = "ctrflow"
    service_account: str = ""
    pipeline_root: str = ""
    store: str = ""
    steps_image: str = ""
    training_image: str = ""
    max_concurrency: int = 1
    sagemaker: SageMaker = field(default_factory=SageMaker)

    def __post_init__(self) -> None:
        expected = "KFP takes 1 to 10"
        require(1 <= self.max_concurrency <= 10, "max_concurrency", self.max_concurrency, expected)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a retraining is. Parts are the settings of their steps, and checked as those are.

    Attributes:
        name: of the model in the store, and of the schedule.
        data: files, folders and globs, local or s3://, in which {date} is the run's date; none: the built-in sample.
        run_date: YYYY-MM-DD in place of the day, in UTC, on which a run begins. days: of the window that ends with it.
        slices: fields by whose values evaluate measures the rows apart.
        data_limits: what training rows must keep to, or the run stops before training.
        limits: what a plan may cost and take. instances: a CSV file of own prices and types, laid over the catalogue.
        policy: what a model must prove beside the margin.
        notify: whom the end of a run is told: https://... (a webhook) or arn:aws:sns:...; empty: nobody.
        runs: on this machine, the folder of runs. models: the model store of runs on this machine, a folder or s3://bucket/folder.
    """

    name: str = PromoteConfig.name
    data: tuple[str, ...] = ()
    sample_rows: int = 200_000
    run_date: str = ""
    days: int = 1
    preprocessing: PreprocessConfig = field(default_factory=lambda: PreprocessConfig(format="criteo"))
    learning: ModelSettings = field(default_factory=ModelSettings)
    profile_budget_s: float = ProfileConfig.budget_s
    strategy: str = ""
    limits: Limits = field(default_factory=Limits)
    instances: str = ""
    warm_start: bool = False
    slices: tuple[str, ...] = ()
    data_limits: DataLimits = field(default_factory=DataLimits)
    margin: float = PromoteConfig.margin
    policy: Policy = field(default_factory=Policy)
    require_promotion: bool = PromoteConfig.require_promotion
    notify: str = ""
    runs: str = "runs"
    models: str = "models"
    cluster: Cluster = field(default_factory=Cluster)

    def __post_init__(self) -> None:
        """Refuses before the first step what a later one would refuse after hours of work."""
        check_name(self.name)
        check_run_date(self.run_date)
        check_window(self.days, self.data)
        ProfileConfig(settings=self.learning, budget_s=self.profile_budget_s)
        PromoteConfig(name=self.name, margin=self.margin, policy=self.policy, require_promotion=self.require_promotion)
        if self.strategy:
            require(self.strategy in STRATEGIES, "strategy", self.strategy, f"choose one of {', '.join(STRATEGIES)}")
            direct_plan(self.strategy, self.learning)  # type: ignore[arg-type]  # it was just looked up
        own = Path(self.instances) if self.instances else None
        SelectConfig(force=self.strategy or None, limits=self.limits, instances=own)  # type: ignore[arg-type]
        read_instances(overrides=own)
        open_storage(self.models)
        told = self.notify.startswith(("https://", "http://", "arn:aws"))
        require(not self.notify or told, "notify", self.notify, "https://... or arn:aws:sns:... is expected")

    def parameters(self) -> dict[str, Any]:
        """The parameters of the pipeline that are the same on every machine."""
        learning = {name: as_parameter(value) for name, value in with_floats(self.learning).learning().items()}
        same = ("name", "run_date", "days", "profile_budget_s", "strategy", "warm_start", "margin", "require_promotion", "notify")
        return {
            **learning,
            **{name: getattr(with_floats(self), name) for name in same},
            "batch_size": self.learning.batch_size,
            "preprocessing": settings_text(self.preprocessing),
            "slices": as_parameter(self.slices),
            "data_limits": json.dumps(asdict(self.data_limits)),
            "limits": json.dumps(asdict(self.limits)),
            "instances": self.instances_text(),
            "policy": json.dumps(asdict(self.policy)),
        }

    def instances_text(self) -> str:
        """The file of instances itself, which is not where the steps run."""
        return Path(self.instances).read_text(encoding="utf-8") if self.instances else ""

    def digest(self) -> str:
        """Of everything that the recipe says, defaults too; comments and order do not count."""
        said = {**asdict(self), "instances": self.instances_text()}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def with_floats(settings: Settings) -> Settings:
    """Settings in which a whole number that stands for a float is one: KFP takes no 3 where a 3.0 is expected."""
    hints = get_type_hints(type(settings))
    floats: dict[str, Any] = {name: float(getattr(settings, name)) for name, kind in hints.items() if kind is float}
    return replace(settings, **floats)


def as_parameter(value: Any) -> Any:
    """A setting as KFP takes it: plain values, lists of numbers as text."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of a file, with some settings changed.

    Args:
        overrides: such as learning.epochs=3, the value in YAML.
    Raises:
        InvalidConfig: no such file, not YAML, or a setting that is unknown or wrong; the message names file and setting.
    """
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidConfig(f"{path}: no such recipe; write one with ctrflow init") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: not YAML ({' '.join(str(error).split())}); ctrflow init writes an example") from error
    document = {} if document is None else document
    for override in overrides:
        document = changed(document, override)
    return recipe_of(document, str(path))


def recipe_of(document: Any, place: str) -> Recipe:
    """The recipe of a document; `place` is what messages call it."""
    if isinstance(document, dict):
        document = {key: without_nothing(value) for key, value in document.items() if value is not None}
        if isinstance(given := document.get("preprocessing"), dict):
            document["preprocessing"] = {"format": "criteo", **given}
    try:
        return settings_of(Recipe, document, place)
    except InvalidConfig as error:
        if str(error).startswith(place):
            raise
        raise InvalidConfig(f"{place}: {error}") from error


def without_nothing(value: Any) -> Any:
    """A section without the keys that have no value, as `role:` has none where the line waits to be filled in."""
    return {key: without_nothing(part) for key, part in value.items() if part is not None} if isinstance(value, dict) else value


def changed(document: Any, override: str) -> Any:
    """The document with one setting changed.

    Raises:
        InvalidConfig: not key=value.
    """
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise InvalidConfig(f"--set {override}: key=value is expected, such as learning.epochs=3")
    try:
        value = load_yaml(text)
    except yaml.YAMLError as error:
        raise InvalidConfig(f"--set {override}: not a YAML value ({' '.join(str(error).split())})") from error
    head, _, rest = key.strip().partition(".")
    base = dict(document) if isinstance(document, dict) else {}
    if rest:
        base[head] = changed(base.get(head), f"{rest}={text}")
    else:
        base[head] = "" if value is None else value
    return base


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """YAML 1.2's core schema, and no key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012  # PyYAML's own way

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := [key for place, key in enumerate(keys) if key in keys[:place]]:
            raise yaml.constructor.ConstructorError(None, None, f"{twice[0]!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


_Loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: int(node.value))  # 017 is 17
for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_first))


def load_yaml(text: str) -> Any:
    """A YAML document.

    Raises:
        yaml.YAMLError: not YAML, or a key stands twice.
    """
    return yaml.load(text, Loader=_Loader)  # a SafeLoader
