"""The catalogue of instance types: what each has, what it costs an hour, and who says so. instances.csv, and a user's own file.

A user's file has columns of the same names, any of them besides name, source and date: an empty cell, or a column that is not
there, is as the catalogue has it. A type that the catalogue lacks needs all of them. The machine one sits at is no row.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from components.errors import InvalidConfig, hint_for
from components.learning import require
from components.storage import atomic_text

CATALOGUE = Path(__file__).with_name("instances.csv")

# A day where it is known, else the month or the year.
_DATE = re.compile(r"\d{4}(-\d{2}(-\d{2})?)?")
_NAME = re.compile(r"ml(\.[a-z0-9-]+){2}")


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One type. `physical_cores` are half the vCPUs where each has two hyper-threads; `gpu_gib` is the memory of one GPU.

    `network_gbit_s` is what the network gives for hours, not in bursts. `usd_per_hour` is on demand, in the region that `source`
    names, else us-east-1. A retired type is still in the API, but there is no capacity of it.
    """

    name: str
    vcpus: int
    physical_cores: int
    gpus: int
    gpu: str
    gpu_gib: float
    memory_gib: float
    network_gbit_s: float
    usd_per_hour: float
    retired: bool
    source: str
    date: str

    def __post_init__(self) -> None:
        require(_NAME.fullmatch(self.name) is not None, "name", self.name, "a type is expected, such as ml.c7i.4xlarge")
        require(0 < self.physical_cores <= self.vcpus, "physical_cores", self.physical_cores, f"must be in 1..{self.vcpus} (vcpus)")
        require(self.gpus >= 0, "gpus", self.gpus, "must not be negative")
        for name in ("memory_gib", "network_gbit_s", "usd_per_hour"):
            require(0 < getattr(self, name) < 1e6, name, getattr(self, name), "must be above 0 and below a million")
        has_gpu = self.gpus > 0
        require(bool(self.gpu) == has_gpu, "gpu", self.gpu, f"must {'be named' if has_gpu else 'be empty'} with gpus {self.gpus}")
        require((0 < self.gpu_gib < 1e6) == has_gpu, "gpu_gib", self.gpu_gib, f"does not go with gpus {self.gpus}")
        require(bool(self.source), "source", self.source, "say where the price is from")
        require(_DATE.fullmatch(self.date) is not None, "date", self.date, "write 2026, 2026-12 or 2026-12-31")

    @property
    def family(self) -> str:
        """c7i of ml.c7i.4xlarge."""
        return self.name.split(".")[1]


COLUMNS = tuple(item.name for item in fields(Instance))
_ALWAYS = ("name", "source", "date")


def read_instances(path: Path | None = None, overrides: Path | None = None) -> tuple[Instance, ...]:
    """The types of a catalogue in its order, with a user's file laid over it; types that only that file has follow.

    Args:
        path: by default the catalogue that comes with ctrflow.
    Raises:
        InvalidConfig: a file is missing, or a row of it is wrong; names file and line.
    """
    known = {row["name"]: _instance(row, place) for place, row in _rows(path or CATALOGUE, COLUMNS)}
    if overrides is not None:
        for place, row in _rows(overrides, _ALWAYS):
            if row["name"] in known:
                row = _cells(known[row["name"]]) | {column: cell for column, cell in row.items() if cell}
            known[row["name"]] = _instance(row, place)
    return tuple(known.values())


@contextmanager
def instances_file(text: str) -> Iterator[Path | None]:
    """A user's file again, whose text came as a parameter of a pipeline; None for an empty text."""
    with TemporaryDirectory(prefix="ctrflow-instances-") as folder:
        path = Path(folder) / "instances.csv"
        path.write_text(text, encoding="utf-8")
        yield path if text else None


def write_overrides(path: Path, instances: Sequence[Instance], catalogue: Sequence[Instance]) -> None:
    """A user's file of these types. What the catalogue says too is left empty, so that a later catalogue may correct it."""
    known = {instance.name: _cells(instance) for instance in catalogue}
    with atomic_text(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for instance in instances:
            there = known.get(instance.name, {})
            priced = (*_ALWAYS, "usd_per_hour")
            writer.writerow(
                "" if column not in priced and cell == there.get(column) else cell for column, cell in _cells(instance).items()
            )


def in_families(instances: Sequence[Instance], families: Sequence[str]) -> tuple[Instance, ...]:
    """The types of these families, such as c7i; all of them where no family is named.

    Raises:
        InvalidConfig: there is no such family.
    """
    there = {instance.family for instance in instances}
    for family in families:
        require(family in there, "family", family, hint_for(family, sorted(there)))
    return tuple(instance for instance in instances if not families or instance.family in families)


def _rows(path: Path, needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Each row with its place, cells without blanks around them; header and number of cells are checked."""
    if not path.is_file():
        raise InvalidConfig(f"{path}: no such file; name a CSV file of instance types")
    with path.open(encoding="utf-8", newline="") as file:
        reader, seen = csv.reader(file), dict[str, str]()
        try:
            header = next(reader, [])
            if lacking := [column for column in needed if column not in header]:
                raise InvalidConfig(f"{path}, line 1: no column {', '.join(lacking)}; columns are {','.join(COLUMNS)}")
            if wrong := [column for column in header if column not in COLUMNS or header.count(column) > 1]:
                raise InvalidConfig(f"{path}, line 1: column {wrong[0]!r} is unknown or there twice; {hint_for(wrong[0], COLUMNS)}")
            for cells in filter(None, reader):
                place = f"{path}, line {reader.line_num}"
                if len(cells) != len(header):
                    raise InvalidConfig(f"{place}: {len(cells)} cells under {len(header)} columns; quote cells with a comma")
                row = {column: cell.strip() for column, cell in zip(header, cells, strict=True)}
                if row["name"] in seen:
                    raise InvalidConfig(f"{place}: {row['name']} is at {seen[row['name']]} already; keep one")
                seen[row["name"]] = place
                yield place, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidConfig(f"{path}: not CSV in UTF-8 after line {reader.line_num} ({error}); write it again") from error


def _instance(row: Mapping[str, str], place: str) -> Instance:
    """The type that the cells of a row describe."""
    if lacking := [column for column in COLUMNS if column not in row]:
        raise InvalidConfig(f"{place}: {row['name']} is not in the catalogue, so it needs {', '.join(lacking)} as well")
    try:
        values: dict[str, Any] = {item.name: _value(item.type, item.name, row[item.name]) for item in fields(Instance)}
        return Instance(**values)
    except InvalidConfig as error:
        raise InvalidConfig(f"{place}: {error}") from error


def _value(kind: Any, column: str, cell: str) -> str | int | float | bool:
    """A cell as its column's type; counts are whole numbers, retired is yes or no."""
    if kind is str:
        return cell
    if kind is bool:
        require(cell in ("yes", "no"), column, cell, "write yes or no")
        return cell == "yes"
    try:
        number: int | float = kind(cell)
    except ValueError:
        raise InvalidConfig(f"{column} {cell!r}: a {'whole ' if kind is int else ''}number is expected") from None
    return number


def _cells(instance: Instance) -> dict[str, str]:
    """As a file has it; numbers as short as they read back the same."""
    values = asdict(instance) | {"retired": "yes" if instance.retired else "no"}
    return {column: value if isinstance(value, str) else f"{value:.10g}" for column, value in values.items()}
