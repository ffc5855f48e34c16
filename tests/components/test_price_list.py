"""AWS's public price list, from a server on loopback that gives a small file of its shape."""

import http.server
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.errors import InvalidConfig, InvalidRecords
from components.instances import read_instances
from components.price_list import download_prices, read_prices, refreshed

# As the public files are: five lines about the file, quoted cells, the columns of all services first and of the product after them.
ABOUT = (
    '"FormatVersion","v1.0"',
    '"Disclaimer","This pricing list is for informational purposes only. All prices are subject to the additional terms included."',
    '"Publication Date","2026-11-30T21:21:51Z"',
    '"Version","20261130212151"',
    '"OfferCode","AmazonSageMaker"',
)
HEADER = (
    '"SKU","OfferTermCode","RateCode","TermType","PriceDescription","EffectiveDate","StartingRange","EndingRange","Unit",'
    '"PricePerUnit","Currency","Product Family","serviceCode","Location","Location Type","usageType","operation","Region Code"'
)


def line(usage: str, price: str, **changes: str) -> str:
    """A line of the list; the price of an hour on demand unless changed."""
    cells = {
        "sku": "JMCWJEAPVJNFJ5P4",
        "offer": "JRTCKXETXF",
        "rate": "JMCWJEAPVJNFJ5P4.JRTCKXETXF.6YS6EN2CT7",
        "term": "OnDemand",
        "description": f"${price} per {usage.partition(':')[2]} hour, in US East (N. Virginia)",
        "effective": "2026-11-01",
        "first": "0",
        "last": "Inf",
        "unit": "Hrs",
        "price": price,
        "currency": "USD",
        "family": "ML Instance",
        "service": "AmazonSageMaker",
        "location": "US East (N. Virginia)",
        "kind": "AWS Region",
        "usage": usage,
        "operation": "RunInstance",
        "region": "us-east-1",
    }
    return ",".join(f'"{cell}"' for cell in (cells | changes).values())


LINES = (
    *ABOUT,
    HEADER,
    line("USE1-Train:ml.m5.xlarge", "0.2400000000"),
    line("USE1-Host:ml.m5.xlarge", "9.0000000000"),
    line("USE1-Train:ml.c5.4xlarge", "0.8160000000"),
    line("USE1-Train:ml.c5.4xlarge", "0.0000000000", description="$0 under the monthly free tier"),
    line("USE1-Train:ml.c5.9xlarge", "1.1000000000", term="Reserved"),
    line("USE1-Train:ml.c5.9xlarge", "1.2000000000", kind="AWS Outposts"),
    line("USE1-Train:ml.c5.9xlarge", "1.3000000000", unit="Quantity"),
    line("USE1-Train:ml.c5.9xlarge", "1.4000000000", currency="CNY"),
    line("USE1-Train:ml.c5.9xlarge", "1.5000000000", first="100"),
    line("USE1-SpotTrain:ml.c5.9xlarge", "1.6000000000"),
    line("USE1-Train:VolumeUsage.gp2", "0.1400000000", unit="GB-Mo"),
    line("USE1-Train:ml.g6.xlarge", "1.1000000000"),
    line("USE1-Train:ml.g6.xlarge", "1.2000000000"),
    line("USE1-Train:ml.p9.large", "7.5000000000"),
)
LIST = "".join(f"{each}\n" for each in LINES)


@contextmanager
def serving(content: bytes, *, length: int | None = None) -> Iterator[str]:
    """Address of a price list on loopback; `length` is what its header promises. Any region but us-east-1 has none."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if "/us-east-1/" in self.path else 404)
            self.send_header("Content-Length", str(len(content) if length is None else length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/offers/{{region}}/index.csv"
        finally:
            server.shutdown()
            thread.join()


def test_prices_are_those_of_training_on_demand() -> None:
    with serving(LIST.encode()) as url:
        prices = download_prices("us-east-1", url)
    assert prices.usd_per_hour == {"ml.m5.xlarge": 0.24, "ml.c5.4xlarge": 0.816, "ml.p9.large": 7.5}
    assert prices.ambiguous == ("ml.g6.xlarge",)
    assert prices.published == "2026-11-30"


@pytest.mark.parametrize(
    "usage", ["Train:ml.m5.xlarge", "EU-Train:ml.m5.xlarge", "APN1-Train:ml.m5.xlarge", "UGW1-Train:ml.m5.xlarge"]
)
def test_every_region_has_a_prefix_of_its_own(usage: str) -> None:
    assert read_prices([*LINES[:6], line(usage, "0.5")], "list").usd_per_hour == {"ml.m5.xlarge": 0.5}


def test_types_of_the_catalogue_get_the_price_its_day_and_its_source() -> None:
    old, new = read_instances(), refreshed(read_instances(), read_prices(LINES, "list"), "us-east-1")
    assert [(each.name, each.usd_per_hour) for each in new] == [("ml.c5.4xlarge", 0.816), ("ml.m5.xlarge", 0.24)]
    assert {(each.source, each.date) for each in new} == {("price list of AWS, us-east-1", "2026-11-30")}
    assert new[0].memory_gib == next(each.memory_gib for each in old if each.name == "ml.c5.4xlarge")


def test_a_list_that_was_fetched_otherwise_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "us-east-1.csv").write_text(LIST)
    assert len(download_prices("us-east-1", f"{tmp_path.as_uri()}/{{region}}.csv").usd_per_hour) == 3


def test_memory_does_not_grow_with_the_list(tmp_path: Path) -> None:
    other = line("USE1-Host:ml.m5.xlarge", "9")
    with (tmp_path / "long.csv").open("w") as file:
        file.write(LIST)
        file.writelines(f"{other}\n" for _ in range(6_000))
    size = (tmp_path / "long.csv").stat().st_size
    tracemalloc.start()
    try:
        download_prices("us-east-1", (tmp_path / "long.csv").as_uri())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 1.5e6
    assert peak < 0.5e6


def test_a_region_without_a_list_is_named() -> None:
    with serving(b"") as url, pytest.raises(InvalidConfig, match=r"HTTP status 404; is there no price list for region mars-1\?"):
        download_prices("mars-1", url)


def test_a_host_that_does_not_answer_is_one_line() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with pytest.raises(InvalidConfig, match=r"cannot be read .*refused.*; nothing was changed") as caught:
            download_prices("us-east-1", f"http://127.0.0.1:{closed.getsockname()[1]}/index.csv")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense", "http://", "file:///no/such/file.csv"])
def test_an_address_that_leads_nowhere_is_one_line(url: str) -> None:
    with pytest.raises(InvalidConfig, match=f"^{url}: cannot be read"):
        download_prices("us-east-1", url)


def test_an_answer_that_breaks_off_is_no_price_list() -> None:
    whole = LIST.encode()
    with (
        serving(whole[:-700], length=len(whole)) as url,
        pytest.raises(InvalidConfig, match=r"it broke off after [\d,]+ of [\d,]+ bytes"),
    ):
        download_prices("us-east-1", url)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("<html>Sign in to this network</html>\n" * 9, "is not the price list of AmazonSageMaker: no column TermType, "),
        (LIST.replace('"AmazonSageMaker"\n"SKU"', '"AmazonEC2"\n"SKU"'), "its first lines name no AmazonSageMaker, or no date"),
        (LIST.replace('"usageType"', '"usage"'), "no column usageType in line 6"),
        (LIST.replace("0.2400000000", "soon"), "line 7: PricePerUnit 'soon' is no price"),
        (LIST.replace("0.2400000000", "-1"), "line 7: PricePerUnit '-1' is no price"),
        (LIST.replace("-Train:", "-Host:"), "has no price of training on demand"),
        ("", "is not the price list"),
    ],
)
def test_what_is_no_price_list_is_refused(content: str, says: str) -> None:
    with serving(content.encode()) as url, pytest.raises(InvalidRecords) as caught:
        download_prices("us-east-1", url)
    assert says in str(caught.value)
    assert str(caught.value).endswith("nothing was changed")
