"""`--heartbeat URL`: a dead man's switch is called while the watch completes its ticks, and is told nothing else."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.watch.controller import Controller, WatchSettings
from clusterproof.plugins.watch.notify import heartbeat, notifier
from clusterproof.plugins.watch.notify.heartbeat import Heartbeat, NoHeartbeat, accepted, send
from clusterproof.plugins.watch.notify.notifier import pause_s
from clusterproof.plugins.watch.sampler_session import SamplerOptions
from tests.watch.conditions import TIMEOUT_S, until
from tests.watch.sinks_of_day import OfDay

SECRET = "tok3n-and-passw0rd"


@dataclass
class Switch:
    """A dead man's switch, and the requests it got."""

    status: int = 200
    after: str = ""  # its Retry-After
    port: int = 0
    heard: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{SECRET}?m=ok"


@contextmanager
def switch(certificate: Path | None = None) -> Iterator[Switch]:
    """A real web server; over TLS if it has a certificate."""
    made = Switch()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.heard.append(f"{self.path} {self.headers['User-Agent'].partition('/')[0]}")
            self.send_response(made.status)
            self.send_header("Location", f"http://127.0.0.1:{made.port}/elsewhere")
            self.send_header("Content-Length", "0")
            if made.after:
                self.send_header("Retry-After", made.after)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        listening.handle_error = lambda *_: None  # type: ignore[method-assign] # who trusts no such certificate
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            listening.socket = context.wrap_socket(listening.socket, server_side=True)
        made.port = listening.server_port
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield made
        finally:
            listening.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "MIN_S", 0.01)
    monkeypatch.setattr(notifier, "FIRST_S", 0.01)
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_the_switch_is_told_after_a_tick_and_not_before() -> None:
    with switch() as receiver:
        beats = Heartbeat(receiver.url, print)
        time.sleep(0.2)
        assert receiver.heard == []
        beats.ticked()
        until(lambda: receiver.heard)
        beats.close()
    assert receiver.heard == [f"/{SECRET}?m=ok clusterproof"]


def test_of_a_tick_before_the_pause_nothing_is_told_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def ticks_meanwhile(url: str, _pauses: list[float]) -> str:
        beats.ticked()  # then the watch hangs
        sent.append(url)
        return ""

    monkeypatch.setattr(heartbeat, "send", ticks_meanwhile)
    beats = Heartbeat("http://switch/", print)
    beats.ticked()
    until(lambda: sent)
    time.sleep(0.5)
    assert len(sent) == 1
    until(lambda: beats.ticked() or len(sent) > 1)
    beats.close()


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "HTTP 404; expected 2xx"), (500, "HTTP 500; expected 2xx"), (301, "HTTP 301; expected 2xx"), (202, "")],
)
def test_what_a_switch_answers_is_said_and_no_redirection_is_followed(status: int, words: str) -> None:
    with switch() as receiver:
        receiver.status = status
        assert send(receiver.url, []) == words
    assert len(receiver.heard) == 1


def test_a_heartbeat_that_fails_is_said_once_and_once_that_it_is_taken_again() -> None:
    own: list[str] = []
    with switch() as receiver:
        receiver.status = 503
        beats = Heartbeat(receiver.url, own.append)
        for number in range(3):
            until(lambda number=number: beats.ticked() or len(receiver.heard) > number)  # type: ignore[misc]
        until(lambda: beats.outage.is_failing)
        receiver.status = 200
        until(lambda: beats.ticked() or not beats.outage.is_failing)
        beats.close()
    assert len(own) == 2
    assert own[0].startswith("the heartbeat was not taken: HTTP 503; expected 2xx; it is sent again")
    assert own[1] == "the heartbeat is taken again"


def test_a_heartbeat_that_is_refused_is_sent_again_after_pauses_like_those_of_a_notification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failures: list[int] = []
    monkeypatch.setattr(heartbeat, "pause_s", lambda count, _asked_s: failures.append(count) or pause_s(count))
    with switch() as receiver:
        receiver.status = 503
        beats = Heartbeat(receiver.url, print)
        until(lambda: beats.ticked() or len(failures) >= 3)
        receiver.status = 200
        until(lambda: beats.ticked() or not beats.outage.is_failing)
        receiver.status, taken = 503, len(failures)
        until(lambda: beats.ticked() or len(failures) > taken)
        beats.close()
    assert failures[: taken + 1] == [*range(1, taken + 1), 1]


@pytest.mark.parametrize(
    ("status", "after", "pauses"), [(429, "40", [40.0]), (503, "86400", [300.0]), (503, "soon", [0.0]), (500, "40", [])]
)
def test_a_switch_that_is_asked_too_often_is_given_the_pause_that_it_asks_for(
    status: int, after: str, pauses: list[float]
) -> None:
    slept: list[float] = []
    with switch() as receiver:
        receiver.status, receiver.after = status, after
        assert send(receiver.url, slept) == f"HTTP {status}; expected 2xx"
    assert slept == pauses


def test_a_pause_that_a_switch_asks_for_is_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(heartbeat, "pause_s", lambda _count, asked_s: pauses.append(asked_s) or 0.01)
    with switch() as receiver:
        receiver.status, receiver.after = 429, "40"
        beats = Heartbeat(receiver.url, print)
        until(lambda: beats.ticked() or pauses)
        beats.close()
    assert pauses[0] == 40.0


def test_nobody_who_listens_is_said_without_the_url() -> None:
    with switch() as receiver:
        url = receiver.url
    assert send(url, []) == "ConnectionRefusedError: Connection refused"
    assert SECRET not in send(f"http://nowhere.invalid/{SECRET}", [])


@pytest.mark.long
def test_a_switch_over_tls_is_asked_where_its_certificate_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    pem = tmp_path / "both.pem"
    arguments = "req -x509 -nodes -newkey rsa:2048 -subj /CN=switch -addext subjectAltName=IP:127.0.0.1 -days 2"
    subprocess.run(
        ["openssl", *arguments.split(), "-keyout", pem, "-out", tmp_path / "ca"], check=True, capture_output=True
    )
    pem.write_text(pem.read_text() + (tmp_path / "ca").read_text())
    with switch(pem) as receiver:
        url = receiver.url.replace("http:", "https:")
        assert send(url, []) == "SSLCertVerificationError: self-signed certificate"
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca"))
        assert send(url, []) == ""


@pytest.mark.parametrize(
    "url",
    [SECRET, f"ftp://host/{SECRET}", f"https:///{SECRET}", f"https://host:x/{SECRET}", f"https://host/a {SECRET}",
     f"https://ops:{SECRET}@host/", "file:///etc/passwd"],
)  # fmt: skip
def test_what_is_no_url_of_a_switch_is_one_line_without_it(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoHeartbeat):
        accepted(url)
    assert main(["watch", "local", "--for", "1s", f"--heartbeat={url}"]) == 4
    error = capsys.readouterr().err
    assert error.startswith("clusterproof watch: --heartbeat is not a URL that can be asked")
    assert error.count("\n") == 1
    assert SECRET not in error


def test_the_url_may_stand_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "heartbeat.args").write_text("--heartbeat=hc-ping.com/without-https\n")
    assert main(["watch", "local", "--for", "1s", f"@{tmp_path / 'heartbeat.args'}"]) == 4
    assert "--heartbeat is not a URL" in capsys.readouterr().err


def controlled(receiver: Switch, watched: OfDay, monkeypatch: pytest.MonkeyPatch) -> Controller:
    """A watch without nodes, with heartbeats."""
    cluster = Cluster("day", "local", (Target("localhost"),))
    settings = WatchSettings(SamplerOptions(0.02), Limits(), ProbeOptions())
    controller = Controller(cluster, watched.day.watch, settings, None, print, watched.sinks)
    monkeypatch.setattr(controller, "_visit", lambda _: controller._events.put(None))
    monkeypatch.setattr(controller, "_connect", lambda: None)
    watched.sinks.beat(receiver.url)
    return controller


@pytest.mark.long
def test_a_watch_that_hangs_goes_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    watched, is_hung, may_go_on = OfDay(), threading.Event(), threading.Event()
    look = watched.day.watch.check_silence

    def hangs(now: float) -> object:
        if len(receiver.heard) >= 2:
            is_hung.set()
            may_go_on.wait(TIMEOUT_S)
        return look(now)

    monkeypatch.setattr(watched.day.watch, "check_silence", hangs)
    with switch() as receiver, watched.sinks:
        controller = controlled(receiver, watched, monkeypatch)
        thread = threading.Thread(target=controller.run)
        thread.start()
        assert is_hung.wait(TIMEOUT_S)
        most = len(receiver.heard) + 1  # one may be in transit
        time.sleep(0.5)
        assert len(receiver.heard) <= most
        may_go_on.set()
        until(lambda: len(receiver.heard) > most)
        controller.stop()
        thread.join(TIMEOUT_S)
    assert not any(thread.name == "watch-heartbeat" for thread in threading.enumerate())


def test_metrics_show_a_heartbeat_that_is_not_taken() -> None:
    watched = OfDay().hello()
    with switch() as receiver, watched.sinks:
        receiver.status = 500
        watched.sinks.beat(receiver.url)
        assert watched.read['trouble{part="heartbeat"}'] == 0
        until(lambda: watched.sinks.ticked() or watched.read['trouble{part="heartbeat"}'] == 1)
    assert SECRET not in str(watched.own)
