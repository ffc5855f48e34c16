"""Objects of S3: a URI means what a local path means, copies are the bytes that were listed, and every refusal is one line."""

import base64
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import boto3
import google_crc32c
import numpy as np
import pytest

from components.errors import InvalidConfig, InvalidRecords, WorkflowError
from components.preprocess.lines import input_files
from components.s3 import find_objects
from components.s3_copies import fetch_objects
from components.storage import S3Object
from components.transfer_log import progress_line

KEYS = (
    *("logs/b.gz", "logs/a.gz", "logs/_SUCCESS", "logs/.a.gz.crc", "logs/deeper/c.gz", "logs/deeper/_SUCCESS", "logs-old/z.gz"),
    *(
        "day=1/part-0.gz",
        "day=2/part-0.gz",
        "day=2/part-1.txt",
        "day=2/more/part-3.gz",
        "day=2/.hidden/part-4.gz",
        ".secret/part.gz",
    ),
    *("odd[1].gz", "odd1.gz", "a-b/x", "a/x", "a/ü & +?.gz"),
)


def put(client: Any, *keys: str, body: bytes = b"rows") -> None:
    for key in keys:
        client.put_object(Bucket="clicks", Key=key, Body=body)


@pytest.mark.parametrize(
    ("argument", "keys"),
    [
        ("logs/a.gz", ["logs/a.gz"]),
        ("logs", ["logs/a.gz", "logs/b.gz"]),
        ("logs/", ["logs/a.gz", "logs/b.gz"]),
        ("logs/_SUCCESS", ["logs/_SUCCESS"]),
        ("", ["odd1.gz", "odd[1].gz"]),
        ("log*/*.gz", ["logs/a.gz", "logs/b.gz", "logs-old/z.gz"]),
        ("logs/**/*", ["logs/a.gz", "logs/b.gz", "logs/deeper/c.gz"]),
        ("logs/**", ["logs/a.gz", "logs/b.gz", "logs/deeper/c.gz"]),
        ("day=*/part-*.gz", ["day=1/part-0.gz", "day=2/part-0.gz"]),
        ("day=[2-9]/part-?.*", ["day=2/part-0.gz", "day=2/part-1.txt"]),
        ("day=*/**/part-*.gz", ["day=1/part-0.gz", "day=2/more/part-3.gz", "day=2/part-0.gz"]),
        ("**/part*", ["day=1/part-0.gz", "day=2/more/part-3.gz", "day=2/part-0.gz", "day=2/part-1.txt"]),
        ("day=2/.*/part*", ["day=2/.hidden/part-4.gz"]),
        ("odd[1].gz", ["odd[1].gz"]),
        ("odd[0-9].gz", ["odd1.gz"]),
        ("a*/*", ["a/x", "a/ü & +?.gz", "a-b/x"]),
    ],
)
def test_a_uri_means_what_a_local_path_means(tmp_path: Path, s3: Any, argument: str, keys: list[str]) -> None:
    put(s3, *KEYS)
    for key in KEYS:
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(b"rows")
    assert [found.key for found in find_objects(f"s3://clicks/{argument}")] == keys
    assert input_files([f"{tmp_path}/{argument}"]) == [tmp_path / key for key in keys]


def test_objects_that_stand_for_folders_are_none(s3: Any) -> None:
    put(s3, "logs/", "logs/deeper/", "logs/deeper_$folder$", "logs", body=b"")
    put(s3, "logs/a.gz")
    assert input_files(["s3://clicks/logs", "s3://clicks/logs/*", "s3://clicks/logs/a.gz"]) == find_objects("s3://clicks/logs/a.gz")
    assert find_objects("s3://clicks/logs/**/*") == find_objects("s3://clicks/logs/a.gz")


def test_an_object_goes_before_a_folder_of_its_name(s3: Any) -> None:
    put(s3, "logs", "logs/a.gz")
    assert [found.key for found in find_objects("s3://clicks/logs")] == ["logs"]
    assert [found.key for found in find_objects("s3://clicks/logs/")] == ["logs/a.gz"]


def test_a_listing_of_several_pages(s3: Any) -> None:
    put(s3, *(f"many/{number:04d}" for number in range(1003)))
    assert [found.key for found in find_objects("s3://clicks/many")] == [f"many/{number:04d}" for number in range(1003)]


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("s3://clicks/absent.gz", "no such object or folder"),
        ("s3://clicks/absent/*.gz", "no such object or folder, and no object matches it"),
        ("s3://clicks/hidden", "no objects in this folder; names that start with . or _ do not count"),
        ("s3://clicks/nested", "no objects in this folder; give 's3://clicks/nested/**/*' to read the folders in it"),
        ("s3://clicks/empty.gz", "the file is empty (0 bytes); remove it or send it again"),
        ("s3://clicks/dataset", "already a ctrflow dataset; give the files that it was made from"),
        ("s3://clacks/day1.gz", "no such bucket; correct its name, or AWS_ENDPOINT_URL_S3 if another store was meant"),
        ("s3://", "s3://bucket/key is expected, with one whole bucket name"),
        ("s3://cl*/x", "s3://bucket/key is expected, with one whole bucket name"),
        ("s3://cl icks/x", 'Parameter validation failed: Invalid bucket name "cl icks"'),
        ("s3a://clicks/x", "only local paths and s3:// are read"),
    ],
)
def test_a_uri_that_means_nothing_is_refused(s3: Any, uri: str, reason: str) -> None:
    put(s3, "hidden/_SUCCESS", "nested/day=1/part-0", "dataset/manifest.json", "dataset/train/part-0", "day1.gz")
    put(s3, "empty.gz", body=b"")
    assert one_line(lambda: input_files(["s3://clicks/day1.gz", uri])).startswith(f"{uri}: {reason}")


def one_line(action: Callable[[], object]) -> str:
    with pytest.raises((InvalidRecords, InvalidConfig)) as caught:
        action()
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "s3://clicks/x: no usable AWS credentials"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "no usable AWS credentials|AWS settings of this environment"),
        ({"AWS_PROFILE": "nobody"}, r"AWS settings of this environment: The config profile \(nobody\) could not be found"),
        ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}, "s3://clicks/x: S3 cannot be reached"),
        ({"AWS_ENDPOINT_URL_S3": "nowhere"}, "AWS settings of this environment: Invalid endpoint"),
    ],
)
def test_an_environment_that_cannot_ask_is_said(
    s3: Any, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], reason: str
) -> None:
    for name, value in changes.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    assert re.match(reason, one_line(lambda: find_objects("s3://clicks/x")))


class Between:
    """Hands requests on to S3, and does to the answers what a test asks for.

    Attributes:
        fault: from method, path and how many such requests there were, what happens: an (HTTP status, error code, further
            XML) instead of the answer, headers beside its own, "flip" a bit in the middle of the body, or "cut" it off there;
            None for nothing.
        asked: headers of all requests with their method.
    """

    def __init__(self, endpoint: str, fault: Callable[[str, int], Any]) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        outer, host = self, urlsplit(endpoint).netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                done = fault(self.command, sum(method == self.command for method, _ in outer.asked))
                outer.asked.append((self.command, dict(self.headers)))
                if isinstance(done, tuple):
                    status, code, more = done
                    headers = {"x-amz-bucket-region": "eu-west-1"} if status == 301 else {}
                    body = f"<Error><Code>{code}</Code><Message>m</Message>{more}</Error>".encode()
                else:
                    upstream = HTTPConnection(host)
                    upstream.request(self.command, self.path, headers=dict(self.headers))
                    response = upstream.getresponse()
                    status, headers, body = response.status, dict(response.getheaders()), response.read()
                    upstream.close()
                headers |= done if isinstance(done, dict) else {}
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("content-length", "connection", "date", "server", "transfer-encoding"):
                        self.send_header(name, value)
                self.send_header("Content-Length", headers.get("Content-Length") or str(len(body)))
                self.end_headers()
                middle = len(body) // 2
                if done == "flip":
                    body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
                if self.command != "HEAD":
                    self.wfile.write(body[:middle] if done == "cut" else body)
                self.close_connection = done == "cut"

            do_GET = do_HEAD = answer

            def log_message(self, *_: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def between(monkeypatch: pytest.MonkeyPatch, endpoint: str, fault: Callable[[str, int], Any]) -> Iterator[Between]:
    made = Between(endpoint, fault)
    Thread(target=made.server.serve_forever, daemon=True).start()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", made.url)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (
            (403, "AccessDenied", ""),
            InvalidConfig,
            "access denied; these credentials need s3:ListBucket on the bucket, s3:GetObject",
        ),
        ((403, "InvalidAccessKeyId", ""), InvalidConfig, "S3 does not know the access key; set AWS_PROFILE"),
        ((403, "SignatureDoesNotMatch", ""), InvalidConfig, "the secret key does not belong to the access key"),
        ((400, "ExpiredToken", ""), InvalidConfig, "the credentials have expired; sign in again"),
        ((403, "RequestTimeTooSkewed", ""), InvalidConfig, "the clock of this machine is wrong"),
        (
            (400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
            InvalidConfig,
            "the bucket is in region eu-west-1; set AWS_REGION=eu-west-1",
        ),
        ((301, "PermanentRedirect", ""), InvalidConfig, "the bucket is in region eu-west-1; set AWS_REGION=eu-west-1"),
        ((404, "NoSuchBucket", ""), InvalidRecords, "no such bucket"),
        ((503, "SlowDown", ""), InvalidRecords, "S3 answers SlowDown (m); try again"),
    ],
)
def test_what_s3_refuses_is_said_with_what_to_do(
    s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str, str], kind: type[WorkflowError], reason: str
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with between(monkeypatch, s3_endpoint, lambda method, nth: answer), pytest.raises(kind) as caught:
        find_objects("s3://clicks/logs")
    assert str(caught.value).startswith(f"s3://clicks/logs: {reason}")


def test_one_object_is_read_without_the_right_to_list(
    tmp_path: Path, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, "day1.gz")
    with between(monkeypatch, s3_endpoint, lambda *_: None) as seen:
        fetch_objects(find_objects("s3://clicks/day1.gz"), tmp_path / "in")
    assert [method for method, _ in seen.asked] == ["HEAD", "GET", "HEAD"]


def listed(client: Any, key: str = "day1.gz") -> list[S3Object]:
    return find_objects(f"s3://clicks/{key}")


BODY = np.random.default_rng(1).bytes(1_000_003)


def test_a_large_object_comes_in_parts_of_one_version(
    tmp_path: Path, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, "day1.gz", body=BODY)
    put(s3, "small")
    [etag] = [found.etag for found in listed(s3)]
    with between(monkeypatch, s3_endpoint, lambda *_: None) as seen:
        [path, small] = fetch_objects([*listed(s3), *listed(s3, "small")], tmp_path / "in", part_bytes=100_000)
    assert (path.read_bytes(), small.read_bytes()) == (BODY, b"rows")
    parts = [headers for method, headers in seen.asked if method == "GET"]
    assert len(parts) == 11 + 1
    assert sum(headers["If-Match"] == etag for headers in parts) == 11
    starts = sorted(int(re.findall(r"\d+", headers["Range"])[0]) for headers in parts if headers["If-Match"] == etag)
    assert starts == list(range(0, 1_000_003, 100_000))


@pytest.mark.parametrize("fault", ["cut", (503, "SlowDown", ""), (500, "InternalError", "")])
def test_what_fails_once_is_asked_again(
    tmp_path: Path, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    put(s3, "day1.gz", body=BODY)
    found = listed(s3)
    with between(monkeypatch, s3_endpoint, lambda method, nth: fault if (method, nth) == ("GET", 1) else None):
        [path] = fetch_objects(found, tmp_path / "in", part_bytes=400_000)
    assert path.read_bytes() == BODY


def test_a_connection_that_always_breaks_is_said(
    tmp_path: Path, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(s3, "day1.gz", body=BODY)
    found = listed(s3)
    with between(monkeypatch, s3_endpoint, lambda method, nth: "cut" if method == "GET" else None):
        message = one_line(lambda: fetch_objects(found, tmp_path / "in"))
    assert message.startswith("s3://clicks/day1.gz: the connection broke again and again (")


@pytest.mark.parametrize(
    ("stored", "named"),
    [
        ({"ChecksumAlgorithm": "SHA256"}, "SHA256"),
        ({"ChecksumAlgorithm": "SHA1"}, "SHA1"),
        ({"ChecksumAlgorithm": "CRC32"}, "CRC32"),
    ],
)
def test_a_bit_that_changes_on_the_way_is_noticed(
    tmp_path: Path, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, stored: dict[str, str], named: str
) -> None:
    s3.put_object(Bucket="clicks", Key="day1.gz", Body=BODY, **stored)
    found = listed(s3)
    assert fetch_objects(found, tmp_path / "sound")[0].read_bytes() == BODY
    with between(monkeypatch, s3_endpoint, lambda method, nth: "flip" if (method, nth) == ("GET", 2) else None):
        message = one_line(lambda: fetch_objects(found, tmp_path / "in", part_bytes=100_000))
    assert re.fullmatch(rf"s3://clicks/day1\.gz: arrived damaged \({named} [0-9a-f]+, S3 says [0-9a-f]+\); run again", message)


CRC32C = base64.b64encode(google_crc32c.Checksum(BODY).digest()).decode()


@pytest.mark.parametrize(
    ("headers", "named"),
    [
        ({}, "MD5"),
        ({"x-amz-server-side-encryption": "AES256"}, "MD5"),
        ({"x-amz-checksum-crc64nvme": "AAAAAAAAAAA="}, "MD5"),
        ({"x-amz-checksum-crc32c": CRC32C, "x-amz-checksum-type": "FULL_OBJECT"}, "CRC32C"),
        # Of parts, which is not the digest of anything that was fetched.
        ({"x-amz-checksum-sha256": f"{CRC32C}-3"}, "MD5"),
        ({"x-amz-checksum-crc32c": "AAAAAA==", "x-amz-checksum-type": "COMPOSITE"}, "MD5"),
        # Of these, an ETag is not the MD5.
        ({"x-amz-server-side-encryption": "aws:kms"}, ""),
        ({"x-amz-server-side-encryption-customer-algorithm": "AES256"}, ""),
        ({"x-amz-storage-class": "EXPRESS_ONEZONE"}, ""),
    ],
)
def test_the_checksum_is_the_best_that_s3_keeps_of_the_whole_object(
    tmp_path: Path, s3: Any, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], named: str
) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    boto3.client("s3").put_object(Bucket="clicks", Key="day1.gz", Body=BODY)
    found = listed(s3)
    with between(monkeypatch, s3_endpoint, lambda method, nth: "flip" if method == "GET" else headers):
        if named:
            assert f"arrived damaged ({named} " in one_line(lambda: fetch_objects(found, tmp_path / "in"))
        else:
            assert fetch_objects(found, tmp_path / "in")[0].stat().st_size == len(BODY)


def test_an_object_that_changes_after_it_was_listed_is_refused(tmp_path: Path, s3: Any) -> None:
    put(s3, "day1.gz", "day2.gz", body=BODY)
    found = find_objects("s3://clicks/*")
    put(s3, "day2.gz", body=BODY[::-1])
    said = "was {} after it had been listed; run again when nothing writes there any more"
    assert one_line(lambda: fetch_objects(found, tmp_path / "a")) == "s3://clicks/day2.gz: " + said.format("replaced")
    s3.delete_object(Bucket="clicks", Key="day1.gz")
    assert one_line(lambda: fetch_objects(found[:1], tmp_path / "b")) == "s3://clicks/day1.gz: " + said.format("removed")


def test_objects_that_do_not_fit_on_the_disk_are_not_begun(tmp_path: Path, s3: Any) -> None:
    huge = [S3Object(bucket="clicks", key=key, size=5 * 10**17, etag='"e"') for key in ("a", "b")]
    message = one_line(lambda: fetch_objects(huge, tmp_path / "in"))
    assert message.startswith("s3://clicks/a and 1 more objects: 1,000,000,000.0 GB are to be fetched, ")
    assert message.endswith(" are free on the disk of the output; choose a larger one")


def test_a_line_says_how_far_it_is() -> None:
    expected = "fetched 1.5 GB of 6.0 GB from S3, 75 MB/s, about 60 s left"
    assert progress_line("fetched", 1_500_000_000, 6_000_000_000, "from S3", 20.0) == expected
