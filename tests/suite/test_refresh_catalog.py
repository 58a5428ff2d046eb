"""`--refresh-catalog` reports where EC2's own answer differs from the catalogue: real sockets, no AWS."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from clusterproof.plugins.suite.refresh_catalog import refresh_catalog

pytestmark = [pytest.mark.long, pytest.mark.any_user]

ROOT = Path(__file__).parents[2]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
QUIET = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_MAX_ATTEMPTS": "1",
}
START_S = 600.0


def refresh(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the option in a separate process with only this AWS configuration."""
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pytest.toml"), "-p", "no:cacheprovider"]
    own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    own |= QUIET | environment
    return subprocess.run(
        [*command, *arguments], env=own, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a moto server, which knows EC2's instance types."""
    log = tmp_path_factory.mktemp("moto") / "log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=out, stderr=out
        )
    try:
        yield _address(log, server)
    finally:
        server.terminate()
        server.wait(START_S)


def _address(log: Path, server: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + START_S
    while time.monotonic() < until and server.poll() is None:
        address = re.search(r"http://127\.0\.0\.1:\d+", log.read_text())
        if address:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address[0]}/moto-api/", timeout=5).close()
                return address[0]
        time.sleep(0.1)
    raise AssertionError(f"moto does not start: {log.read_text()}")


def test_the_catalogue_is_what_ec2_says_of_every_type_that_moto_knows(moto: str) -> None:
    ran = refresh("--refresh-catalog", "us-east-1", AWS_ENDPOINT_URL=moto, **CREDENTIALS)
    *lines, summary = ran.stdout.splitlines()
    assert [line for line in lines if "missing in the catalogue" not in line] == []  # a newer moto may know more types
    assert ran.returncode == (1 if lines else 0), ran.stderr
    compared = re.match(r"(\d+) types compared with EC2 in us-east-1, ", summary)
    assert compared
    assert int(compared[1]) >= 40


class Ec2(ThreadingHTTPServer):
    """A service that answers DescribeInstanceTypes with these pages in turn, or with an error."""

    def __init__(self, pages: Sequence[str] = (), status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.pages = list(pages)
        self.status = status

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{self.server_address[1]}"
        finally:
            self.shutdown()
            self.server_close()
            thread.join(START_S)


class _Answer(BaseHTTPRequestHandler):
    server: Ec2

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = (self.server.pages.pop(0) if len(self.server.pages) > 1 else self.server.pages[0]).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def page(*types: str, token: str = "") -> str:
    rest = f"<nextToken>{token}</nextToken>" if token else ""
    return (
        '<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<instanceTypeSet>{''.join(types)}</instanceTypeSet>{rest}</DescribeInstanceTypesResponse>"
    )


def p5(name: str = "p5.48xlarge", **changed: str) -> str:
    """EC2's answer about a type like a p5.48xlarge except for these."""
    values = {"gpus": "8", "efa": "32", "vcpus": "192", "net": "3200 Gigabit", **changed}
    return f"""<item><instanceType>{escape(name)}</instanceType>
<vCpuInfo><defaultVCpus>{values["vcpus"]}</defaultVCpus></vCpuInfo>
<memoryInfo><sizeInMiB>2097152</sizeInMiB></memoryInfo>
<instanceStorageInfo><disks><item><count>8</count><sizeInGB>3800</sizeInGB></item></disks></instanceStorageInfo>
<networkInfo><efaInfo><maximumEfaInterfaces>{values["efa"]}</maximumEfaInterfaces></efaInfo>
<networkPerformance>{values["net"]}</networkPerformance></networkInfo>
<gpuInfo><gpus><item><count>{values["gpus"]}</count><name>H100</name>
<memoryInfo><sizeInMiB>81920</sizeInMiB></memoryInfo></item></gpus></gpuInfo></item>"""


@dataclass(frozen=True)
class Ran:
    """A comparison's exit code and output."""

    status: int
    out: str
    errors: str


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Compare with EC2 in us-west-2 with only this AWS configuration."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)

    def ask(region: str = "us-west-2", **environment: str) -> Ran:
        for name, value in (QUIET | environment).items():
            monkeypatch.setenv(name, value)
        status = refresh_catalog(region)
        output = capsys.readouterr()
        return Ran(status, output.out, output.err)

    return ask


@pytest.fixture
def answered(ask: Callable[..., Ran]) -> Callable[..., Ran]:
    """Compare with an EC2 that answers these pages."""

    def answered(*pages: str, status: int = 200) -> Ran:
        with Ec2(pages, status).running() as address:
            return ask(AWS_ENDPOINT_URL=address, **CREDENTIALS)

    return answered


def test_a_type_that_is_as_the_catalogue_says_is_no_difference(answered: Callable[..., Ran]) -> None:
    ran = answered(page(p5()))
    assert ran.status == 0, ran.errors
    assert ran.out.startswith("1 types compared with EC2 in us-west-2, 0 differences; not offered in us-west-2: ")


def test_every_field_that_differs_is_named_with_both_values(answered: Callable[..., Ran]) -> None:
    ran = answered(page(p5(efa="16", vcpus="96")))
    assert ran.status == 1
    assert ran.out.splitlines()[:2] == [
        "p5.48xlarge: efa is 32 in the catalogue; EC2 has 16",
        "p5.48xlarge: vcpus is 192 in the catalogue; EC2 has 96",
    ]


def test_a_type_that_the_catalogue_lacks_is_named_with_what_it_has(answered: Callable[..., Ran]) -> None:
    ran = answered(page(p5(), p5("p9.48xlarge", gpus="16")))
    assert ran.status == 1
    assert "p9.48xlarge: missing in the catalogue; EC2 has gpus 16, gpu_model H100," in ran.out


def test_types_without_efa_are_not_missed(answered: Callable[..., Ran]) -> None:
    assert answered(page(p5(), p5("p9.large", efa="0"))).status == 0


def test_a_region_is_taken_from_the_environment_where_none_is_named(ask: Callable[..., Ran]) -> None:
    with Ec2([page(p5())]).running() as address:
        ran = ask("", AWS_ENDPOINT_URL=address, AWS_DEFAULT_REGION="eu-north-1", **CREDENTIALS)
    assert ran.out.startswith("1 types compared with EC2 in eu-north-1"), ran.errors


def test_all_pages_are_read(answered: Callable[..., Ran]) -> None:
    ran = answered(page(p5("m5.large", efa="0"), token="more"), page(p5(efa="8")))
    assert "p5.48xlarge: efa is 32 in the catalogue; EC2 has 8" in ran.out


def test_a_region_that_offers_none_of_the_types_is_no_equality(answered: Callable[..., Ran]) -> None:
    ran = answered(page(p5("m5.large", efa="0")))
    assert ran.status == 1
    assert ran.out.startswith("0 types compared")


NOT_ALLOWED = "ec2:DescribeInstanceTypes is not allowed to this identity"
ERROR = "<Response><Errors><Error><Code>{}</Code><Message>{}</Message></Error></Errors></Response>"


@pytest.mark.parametrize(
    ("pages", "status", "words"),
    [
        (ERROR.format("AuthFailure", "could not be validated"), 401, "the credentials are not valid or have expired"),
        (ERROR.format("UnauthorizedOperation", "not authorized"), 403, NOT_ALLOWED),
        ("<html>a proxy's page", 200, "Unable to parse"),
        (page("<item><instanceType>p5.48xlarge</instanceType></item>"), 200, "p5.48xlarge is not understood"),
    ],
)
def test_what_ec2_refuses_or_mumbles_is_one_line_and_4(
    pages: str, status: int, words: str, answered: Callable[..., Ran]
) -> None:
    ran = answered(pages, status=status)
    assert (ran.status, ran.out) == (4, "")
    (line,) = ran.errors.splitlines()
    assert line.startswith("ERROR: --refresh-catalog: ")
    assert words in line


@pytest.mark.parametrize(
    ("region", "environment", "words"),
    [
        ("us-east-1", {}, "no AWS credentials here"),
        ("", CREDENTIALS, "no AWS region; expected --region"),
        ("checks/gpu", CREDENTIALS, "'checks/gpu' is not a region"),
        ("us-east-1", CREDENTIALS | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect"),
    ],
)
def test_an_ec2_that_cannot_be_asked_is_one_line_and_4(
    region: str, environment: dict[str, str], words: str, ask: Callable[..., Ran]
) -> None:
    ran = ask(region, **environment)
    assert (ran.status, ran.out) == (4, "")
    (line,) = ran.errors.splitlines()
    assert words in line


def test_without_boto3_the_line_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "boto3.py").write_text("raise ImportError\n")
    ran = refresh("--refresh-catalog", PYTHONPATH=str(tmp_path))
    assert (ran.returncode, ran.stderr) == (
        4,
        "ERROR: --refresh-catalog: boto3 is not installed; pip install boto3\n",
    )


def test_a_run_without_the_option_imports_no_boto3() -> None:
    script = "import sys, clusterproof.plugins.cluster; sys.exit('boto3' in sys.modules or 'botocore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
