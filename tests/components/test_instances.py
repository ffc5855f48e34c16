"""The catalogue of instance types, and a user's file over it."""

from pathlib import Path

import pytest

from components.errors import InvalidConfig
from components.instances import COLUMNS, in_families, instances_file, read_instances, write_overrides
from components.request_checks import service_model

HEADER = ",".join(COLUMNS)
ROW = "ml.c9i.large,2,1,0,,0,4,0.5,0.1,no,a guess,2026-12-02"
GPU_ROW = "ml.g9.xlarge,4,2,1,X1,24,16,2.5,1.5,no,a guess,2026-12-02"


def test_the_catalogue_has_types_that_the_api_trains_on() -> None:
    names = [instance.name for instance in read_instances()]
    assert len(names) == 47
    assert not set(names) - set(service_model("sagemaker").shape_for("TrainingInstanceType").enum)


# Of the vendor's own pages: vCPUs, GiB and GPUs of a type are those of the EC2 type of the same name.
@pytest.mark.parametrize(
    ("name", "vcpus", "cores", "gpus", "memory_gib", "usd_per_hour"),
    [
        ("ml.c5.9xlarge", 36, 18, 0, 72, 1.836),
        ("ml.c7i.48xlarge", 192, 96, 0, 384, 10.282),
        ("ml.m5.xlarge", 4, 2, 0, 16, 0.23),
        ("ml.g4dn.12xlarge", 48, 24, 4, 192, 4.89),
        ("ml.g5.16xlarge", 64, 32, 1, 256, 5.12),
        ("ml.p4d.24xlarge", 96, 48, 8, 1152, 25.251),
    ],
)
def test_a_type_has_what_the_vendor_says(
    name: str, vcpus: int, cores: int, gpus: int, memory_gib: float, usd_per_hour: float
) -> None:
    found = next(instance for instance in read_instances() if instance.name == name)
    figures = (found.vcpus, found.physical_cores, found.gpus, found.memory_gib, found.usd_per_hour)
    assert figures == (vcpus, cores, gpus, memory_gib, usd_per_hour)


def test_retired_and_derived_types_say_so() -> None:
    every = read_instances()
    assert {instance.family for instance in every if instance.retired} == {"p3", "p3dn"}
    derived = {instance.name: instance for instance in every if instance.source.startswith("derived")}
    assert {instance.family for instance in derived.values()} == {"c6i", "c7i", "g6"}
    # EC2's own prices, on demand in us-east-1.
    for name, ec2 in (("ml.c6i.4xlarge", 0.68), ("ml.c7i.4xlarge", 0.714), ("ml.g6.8xlarge", 2.0144)):
        factor = float(derived[name].source.rpartition(" x ")[2])
        assert derived[name].usd_per_hour == pytest.approx(factor * ec2, abs=1e-3)


def test_families_are_chosen_by_name() -> None:
    chosen = in_families(read_instances(), ["p3dn", "m5"])
    assert [instance.name for instance in chosen][-2:] == ["ml.m5.24xlarge", "ml.p3dn.24xlarge"]
    assert in_families(chosen, []) == chosen
    with pytest.raises(InvalidConfig, match=r"family 'c7': did you mean c7i\?"):
        in_families(read_instances(), ["c7"])


def test_a_users_file_overrides_prices_and_adds_types(tmp_path: Path) -> None:
    own = tmp_path / "own.csv"
    own.write_text("name,usd_per_hour,source,date\nml.m5.xlarge, 0.1 ,our contract,2026-12-01\n")
    every = {instance.name: instance for instance in read_instances(overrides=own)}
    found = every["ml.m5.xlarge"]
    assert (found.usd_per_hour, found.source, found.date) == (0.1, "our contract", "2026-12-01")
    assert (found.vcpus, found.memory_gib, found.retired) == (4, 16, False)
    assert len(every) == 47
    own.write_text(f"{HEADER}\nml.p3.2xlarge,,,,,,,,,no,we still get them,2026-12-01\n{ROW}\n{GPU_ROW}\n")
    added = read_instances(overrides=own)
    assert [instance.name for instance in added][47:] == ["ml.c9i.large", "ml.g9.xlarge"]
    assert (added[-1].gpu, added[-1].gpu_gib, added[-1].network_gbit_s) == ("X1", 24, 2.5)
    assert not next(instance for instance in added if instance.name == "ml.p3.2xlarge").retired


def test_a_file_of_overrides_says_only_what_differs(tmp_path: Path) -> None:
    own, catalogue = tmp_path / "own.csv", read_instances()
    own.write_text(f"{HEADER}\nml.m5.xlarge,,,,,,,,0.1,,our contract,2026-12-01\n{GPU_ROW}\n")
    known = read_instances(overrides=own)
    again = tmp_path / "again.csv"
    write_overrides(again, [instance for instance in known if instance not in catalogue], catalogue)
    assert again.read_text() == own.read_text()
    assert read_instances(overrides=again) == known


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (ROW.replace(",2,1,", ",2,3,"), "physical_cores 3: must be in 1..2 (vcpus)"),
        (ROW.replace(",2,1,", ",two,1,"), "vcpus 'two': a whole number is expected"),
        (ROW.replace(",2,1,", ",2.0,1,"), "vcpus '2.0': a whole number is expected"),
        (ROW.replace(",0.1,", ",nan,"), "usd_per_hour nan: must be above 0 and below a million"),
        (ROW.replace(",0.1,", ",-1,"), "usd_per_hour -1.0: must be above 0 and below a million"),
        (ROW.replace(",0.1,", ",,"), "usd_per_hour '': a number is expected"),
        (ROW.replace(",no,", ",false,"), "retired 'false': write yes or no"),
        (ROW.replace(",a guess,", ",,"), "source '': say where the price is from"),
        (ROW.replace("2026-12-02", "2 Dec"), "date '2 Dec': write 2026, 2026-12 or 2026-12-31"),
        (ROW.replace("ml.c9i.large", "c9i.large"), "name 'c9i.large': a type is expected, such as ml.c7i.4xlarge"),
        (ROW.replace(",0,,0,", ",1,,0,"), "gpu '': must be named with gpus 1"),
        (ROW.replace(",0,,0,", ",0,T4,0,"), "gpu 'T4': must be empty with gpus 0"),
        (GPU_ROW.replace(",24,", ",0,"), "gpu_gib 0.0: does not go with gpus 1"),
        (f"{ROW},", "13 cells under 12 columns; quote cells with a comma"),
        ("ml.m5.xlarge,0,,,,,,,,,us,2026", "physical_cores 2: must be in 1..0 (vcpus)"),
        (f"{ROW}\n{ROW}", "line 3: ml.c9i.large is at"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, row: str, says: str) -> None:
    own = tmp_path / "own.csv"
    own.write_text(f"{HEADER}\n{row}\n")
    with pytest.raises(InvalidConfig) as caught:
        read_instances(overrides=own)
    assert str(caught.value).startswith(f"{own}, line ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "line 1: no column name, source, date; columns are name,vcpus,"),
        (b"name,usd_hour,source,date\n", "line 1: column 'usd_hour' is unknown or there twice; did you mean usd_per_hour?"),
        (b"name,date,source,date\n", "line 1: column 'date' is unknown or there twice"),
        (b"name,source,date\nml.c9i.large,a guess,2026\n", "line 2: ml.c9i.large is not in the catalogue, so it needs vcpus,"),
        (b"name,source,date\n\xff\n", "not CSV in UTF-8"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, says: str) -> None:
    own = tmp_path / "own.csv"
    own.write_bytes(content)
    with pytest.raises(InvalidConfig) as caught:
        read_instances(overrides=own)
    assert str(caught.value).startswith(str(own))
    assert says in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"own\.csv: no such file"):
        read_instances(overrides=tmp_path / "own.csv")


def test_a_users_file_comes_to_a_step_as_its_text(tmp_path: Path) -> None:
    text = "name,usd_per_hour,source,date\nml.c7i.4xlarge,0.5,a contract,2026-12\n"
    with instances_file(text) as path:
        assert {each.name: each.usd_per_hour for each in read_instances(overrides=path)}["ml.c7i.4xlarge"] == 0.5
    assert path is not None
    assert not path.exists()
    with instances_file("") as path:
        assert path is None
