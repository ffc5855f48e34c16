"""What a source is and what is to be written: the settings of the step."""

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from components.errors import InvalidConfig
from components.manifest import SplitBy
from components.preprocess.columns import Columns, read_columns
from components.preprocess.criteo import CRITEO, FIELD_SIZE, RESERVED_IDS
from components.preprocess.delimited import Delimited, Separator
from components.preprocess.fitting import TransformConfig
from components.preprocess.libffm import FieldLayout
from components.preprocess.splits import SplitConfig
from components.preprocess.worker import Format
from components.records import ENCODINGS, Encoding, Schema

FORMATS: tuple[Format, ...] = get_args(Format)
OnBadRow = Literal["stop", "skip"]
VALIDATION_FRACTION = 0.1
# In the place of a file: the transform of the champion in the store that the pipeline knows.
CHAMPION = "champion"


@dataclass(frozen=True, kw_only=True)
class PreprocessConfig:
    """What the source is and what to write.

    `field_size` and `feature_size` 0 mean: take them from the data; of criteo, `feature_size` says how large a table hashed tokens
    make. `max_bad_rows` counts only where bad rows are skipped. `processes` 0 means: as many as this container has CPUs, one for
    small inputs; the bytes that are written do not depend on it.

    Of libffm `field_size` counts fields, from `field_base` on, of which each takes `values_per_field` places of a row. Of tables
    (csv, parquet, tfrecord with named features) `columns` says what the columns mean, as columns.py reads it; those of criteo are
    known. `transform` names one that was fitted before; without it, one is fitted as `fitting` says. With `grow_to` its
    vocabularies grow by tokens that stand `min_count` times, up to so many ids in all. `names` are the columns of CSV without a
    header. In the pipeline `transform` may be `champion`, which is fitted where there is none yet (champion_rows.py).

    `split_by`, `split_column` and `split_boundary` say which rows validate (splits.SplitConfig), `validation_fraction` how many: a
    tenth unless it is given, and times decide alone. `shards` 0 means: as many as suit the rows, and share out evenly among
    `workers`, those of all hosts that will train (shard_counts.py). Of the negative rows that train only the share `negative_rate`
    is kept.
    """

    format: Format
    field_size: int = 0
    feature_size: int = 0
    id_base: int = 0
    validation_fraction: float | None = None
    split_by: SplitBy = "row"
    split_column: str = ""
    split_boundary: str = ""
    negative_rate: float = 1.0
    seed: int = 0
    encoding: Encoding = "blocks"
    shards: int = 0
    workers: int = 1
    on_bad_row: OnBadRow = "stop"
    max_bad_rows: int = 1000
    processes: int = 0
    field_base: int = 0
    values_per_field: int = 1
    columns: str = ""
    separator: Separator = ","
    names: tuple[str, ...] = ()
    transform: str = ""
    grow_to: int = 0
    fitting: TransformConfig = field(default_factory=TransformConfig)

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidConfig(f"format {self.format!r} is none of {', '.join(FORMATS)}")
        if self.encoding not in ENCODINGS:
            raise InvalidConfig(f"encoding {self.encoding!r} is none of {', '.join(ENCODINGS)}")
        if not 0.0 < self.held_out < 1.0:
            raise InvalidConfig(f"validation_fraction {self.held_out}: must be between 0 and 1")
        if not 0.0 < self.negative_rate <= 1.0:
            raise InvalidConfig(f"negative_rate {self.negative_rate}: must be above 0 and at most 1")
        if self.split.by == "time" and self.validation_fraction is not None:
            raise InvalidConfig(
                f"validation_fraction {self.validation_fraction}: with split by time, times decide; leave "
                "--validation-fraction out, or give --split-boundary"
            )
        if self.split.by != "row" and not self.is_table:
            raise InvalidConfig(
                f"split by {self.split_by}: columns of format {self.format} have no names; leave it out, or give a table, "
                "such as csv, parquet or tfrecord with --columns"
            )
        if self.workers < 1:
            raise InvalidConfig(f"workers {self.workers}: at least 1 is needed")
        if self.shards and self.workers > 1:
            raise InvalidConfig(f"shards {self.shards}: --workers {self.workers} chooses their number; leave one of them out")
        if self.on_bad_row not in get_args(OnBadRow):
            raise InvalidConfig(f"on_bad_row {self.on_bad_row!r} is none of {', '.join(get_args(OnBadRow))}")
        if self.grow_to and not self.transform:
            raise InvalidConfig(f"grow_to {self.grow_to}: say which transform grows (--transform), or leave --grow-to out")
        for name in ("field_size", "feature_size", "seed", "max_bad_rows", "processes", "shards", "grow_to"):
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} {getattr(self, name)}: must not be negative")
        # Checks the ranges that Schema knows, before any file is read.
        Schema(field_size=self.field_size or 1, feature_size=self.feature_size or 1, id_base=self.id_base)
        if self.id_base and not self.holds_ids:
            raise InvalidConfig(f"id_base 1: {self.format} rows hold no ids; leave --id-base out")
        Delimited(separator=self.separator, names=self.names)
        if self.format == "criteo":
            self._check_criteo()
        elif self.is_table and not self.columns:
            raise InvalidConfig(f"format {self.format}: say what the columns mean, such as --columns 'label=click; numeric=price'")
        if self.format != "libffm" and (self.field_base, self.values_per_field) != (0, 1):
            raise InvalidConfig(f"format {self.format}: --field-base and --values-per-field are for libffm; leave them out")
        FieldLayout(fields=max(self.field_size, 1), field_base=self.field_base, values_per_field=self.values_per_field)
        if not self.is_table and (self.columns or self.transform or self.names):
            raise InvalidConfig(f"format {self.format}: --columns, --names, --transform are for tables; leave them out")
        if self.is_table and self.format != "criteo" and (self.field_size or self.feature_size):
            raise InvalidConfig(f"format {self.format}: columns and transform make field_size and feature_size; leave them out")

    def _check_criteo(self) -> None:
        if self.columns or self.names:
            raise InvalidConfig("format criteo: its columns are known; leave --columns and --names out")
        if self.field_size not in (0, FIELD_SIZE):
            raise InvalidConfig(f"field_size {self.field_size}: criteo rows have {FIELD_SIZE} fields; leave --field-size out")
        if not self.feature_size:
            return
        hashes = self.fitting.categories == "hash" and self.fitting.numbers != "bucket" and not self.transform
        if not hashes or self.fitting.hash_size != TransformConfig().hash_size:
            raise InvalidConfig(
                f"feature_size {self.feature_size}: other settings of criteo decide the table; leave --feature-size out"
            )
        if self.feature_size <= RESERVED_IDS:
            raise InvalidConfig(f"feature_size {self.feature_size}: criteo needs more than {RESERVED_IDS}; raise --feature-size")

    @property
    def table_columns(self) -> Columns:
        """What the columns of a table mean."""
        return CRITEO if self.format == "criteo" else read_columns(self.columns)

    @property
    def table_fitting(self) -> TransformConfig:
        """How columns become ids and values, the size of a table for criteo as that of its part for hashed tokens."""
        if self.format == "criteo" and self.feature_size:
            return replace(self.fitting, hash_size=self.feature_size - RESERVED_IDS)
        return self.fitting

    @property
    def held_out(self) -> float:
        """The share that validates, where times do not decide."""
        return VALIDATION_FRACTION if self.validation_fraction is None else self.validation_fraction

    @property
    def split(self) -> SplitConfig:
        """Which rows validate."""
        return SplitConfig(by=self.split_by, column=self.split_column, boundary=self.split_boundary)

    @property
    def holds_ids(self) -> bool:
        """Whether rows of the source hold ids, which nothing is known of but that they fit the table."""
        return self.format in ("libsvm", "libffm") or (self.format == "tfrecord" and not self.columns)

    @property
    def is_table(self) -> bool:
        """Whether columns have names, and are made ids and values of by a transform."""
        return self.format in ("criteo", "csv", "parquet") or (self.format == "tfrecord" and bool(self.columns))
