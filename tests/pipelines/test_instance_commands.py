"""ctrflow instances as a user types it: what is printed, the file that is left, and the exit code."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]

LIST = """\
"FormatVersion","v1.0"
"Disclaimer","This pricing list is for informational purposes only."
"Publication Date","2026-11-30T21:21:51Z"
"Version","20261130212151"
"OfferCode","AmazonSageMaker"
"SKU","TermType","StartingRange","EndingRange","Unit","PricePerUnit","Currency","Location Type","usageType","Region Code"
"A","OnDemand","0","Inf","Hrs","0.2400000000","USD","AWS Region","USE1-Train:ml.m5.xlarge","us-east-1"
"B","OnDemand","0","Inf","Hrs","0.8160000000","USD","AWS Region","USE1-Train:ml.c5.4xlarge","us-east-1"
"C","OnDemand","0","Inf","Hrs","7.5000000000","USD","AWS Region","USE1-Train:ml.p9.large","us-east-1"
"""


def test_list_prints_a_line_a_type_or_a_document(ctrflow: Run, tmp_path: Path) -> None:
    done = ctrflow("instances", "list", "--family", "p3dn", "--family", "m5", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 7
    assert lines[0].split() == ["type", "vCPUs", "cores", "GPUs", "GiB", "Gbit/s", "USD/h", "price", "of", "source"]
    assert lines[1].split()[:7] == ["ml.m5.xlarge", "4", "2", "-", "16", "1.25", "0.2300"]
    assert lines[-1].split()[-6:] == ["35.8940", "retired", "2026-12", "public", "price", "table"]
    (tmp_path / "own.csv").write_text("name,usd_per_hour,source,date\nml.m5.xlarge,0.1,our contract,2026-12-01\n")
    done = ctrflow("instances", "list", "--instances", "own.csv", "--json", cwd=tmp_path)
    document = {each["name"]: each for each in json.loads(done.stdout)}
    assert len(document) == 47
    assert (document["ml.m5.xlarge"]["usd_per_hour"], document["ml.m5.xlarge"]["source"]) == (0.1, "our contract")


def test_refresh_writes_prices_and_keeps_types_of_the_user(ctrflow: Run, tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text(LIST)
    own = "ml.c9i.large,2,1,0,,0,4,0.5,0.1,no,a guess,2026-12-02"
    (tmp_path / "own.csv").write_text(
        "name,vcpus,physical_cores,gpus,gpu,gpu_gib,memory_gib,network_gbit_s,usd_per_hour,retired,source,date\n"
        f"{own}\nml.m5.xlarge,,,,,,,,0.1,,a contract of ours,2026-01-01\nml.g5.xlarge,,,,,,,,1.0,,a contract of ours,2026-01-01\n"
    )
    done = ctrflow("instances", "refresh", "--out", "own.csv", "--price-list", (tmp_path / "list.csv").as_uri(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert printed[0] == "own.csv: prices of 2 types of 2026-11-30 in us-east-1, 1 of them changed"
    assert printed[1].startswith("as before, for the list has no single price of them: ml.c5.9xlarge, ")
    assert printed[2].startswith("1 types of the list are not in the catalogue")
    rows = {row["name"]: row for row in csv.DictReader((tmp_path / "own.csv").open())}
    assert rows.keys() == {"ml.c5.4xlarge", "ml.m5.xlarge", "ml.g5.xlarge", "ml.c9i.large"}
    assert (rows["ml.m5.xlarge"]["usd_per_hour"], rows["ml.m5.xlarge"]["source"]) == ("0.24", "price list of AWS, us-east-1")
    assert (rows["ml.m5.xlarge"]["date"], rows["ml.m5.xlarge"]["vcpus"]) == ("2026-11-30", "")
    assert rows["ml.g5.xlarge"]["usd_per_hour"] == "1"
    again = ctrflow("instances", "refresh", "--price-list", (tmp_path / "list.csv").as_uri(), "--json", cwd=tmp_path)
    document = json.loads(again.stdout)
    assert (document["out"], document["published"], document["refreshed"]) == ("instances.csv", "2026-11-30", 2)
    assert (document["changed"], document["not_in_catalogue"]) == (1, 1)
    assert ",".join(rows["ml.c9i.large"].values()) == own


def test_a_list_out_of_reach_is_one_line_and_changes_nothing(ctrflow: Run, tmp_path: Path) -> None:
    where = ("--price-list", "http://127.0.0.1:1/{region}/index.csv")
    done = ctrflow("instances", "refresh", *where, "--json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ctrflow: http://127.0.0.1:1/us-east-1/index.csv: cannot be read (")
    assert "; nothing was changed" in last
    assert list(tmp_path.iterdir()) == []
