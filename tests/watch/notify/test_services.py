"""Notification by URL: over a real web server, without showing any of the URL."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import apprise
import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.watch import ALSO, Change, ChangeKind
from clusterproof.plugins.watch.notify import Alert, Notification, incident_of
from clusterproof.plugins.watch.notify.receiver import Delivery, NoReceiver, ReceiverProgram, arguments_of
from clusterproof.plugins.watch.notify.services import MAX_BODY, MAX_TITLE, message_of, receiver_of, within
from tests.watch.receiving import change, lines, web_server
from tests.watch.sinks_of_day import OfDay

SECRET = "tok3n-and-passw0rd"


def test_a_task_for_which_no_thread_can_be_started_costs_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[str]()

    def starts_all_but_the_second(thread: threading.Thread) -> None:
        started.append(thread.name)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts_all_but_the_second)
    assert within(60.0, [lambda: "refused", str, str]) == ["refused", "can't start new thread", ""]


def notification(*changes: Change) -> Notification:
    alerts = tuple(Alert.of(at, changed, 1.7e9, 1.7e9 - 3600) for at, changed in enumerate(changes))
    return Notification("d0e-1", "prod", alerts, incident_of("prod", alerts))


def test_a_url_of_apprise_is_told_what_a_program_is_in_words_with_the_ids() -> None:
    with web_server() as server:
        receiver = receiver_of(f"json://ops:{SECRET}@127.0.0.1:{server.port}/{SECRET}", 1)
        sent = notification(change("gpu001", device="GPU 3"), change("gpu002", device="GPU 1"))
        assert receiver.send(sent) == Delivery()
    (taken,) = server.taken
    assert (taken["title"], taken["type"]) == ("prod: FAIL watch.silent on gpu[001-002]", "failure")
    assert taken["message"].splitlines() == [
        "gpu[001-002]: of gpu001; expected none [watch.silent]",
        "devices: gpu001 GPU 3, gpu002 GPU 1",
        "changes: 2, of which this is the first",
        "since 2023-11-14 21:13:20 UTC",
        f"notification d0e-1, incident {sent.incident}",
    ]
    assert receiver.name == "json"


@pytest.mark.parametrize(
    ("status", "after", "seconds"), [(429, "120", 120), (503, "120", 120), (500, "120", 0), (429, "", 0)]
)
def test_a_service_that_asks_for_a_pause_is_heard(status: int, after: str, seconds: float) -> None:
    with web_server() as server:
        server.status, server.after = status, after
        outcome = receiver_of(f"json://127.0.0.1:{server.port}/{SECRET}", 1).send(notification(change("gpu001")))
    assert outcome == Delivery("json: the service refused it or did not answer", seconds)


class Endless(BaseHTTPRequestHandler):
    """Takes a message, and answers with as much as is read, up to 64 MiB."""

    status, sent_mib = 200, 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Location", "/elsewhere")
        self.end_headers()
        with contextlib.suppress(OSError):  # nobody reads on
            for Endless.sent_mib in range(65):
                self.wfile.write(b"x" * (1 << 20))

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize(
    ("status", "outcome"), [(200, Delivery()), (307, Delivery("json: the service refused it or did not answer"))]
)
def test_no_more_of_an_answer_is_read_than_its_beginning(
    status: int, outcome: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Endless, "status", status)
    monkeypatch.setattr(Endless, "sent_mib", 0)
    with HTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        receiver = receiver_of(f"json://127.0.0.1:{server.server_port}/", 1)
        assert receiver.send(notification(change("gpu001"))) == outcome
        thread.join()
    assert Endless.sent_mib < 64


class Moved(BaseHTTPRequestHandler):
    """Takes a message below `/new`, and names that place elsewhere."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200 if self.path.startswith("/new") else 307)
        self.send_header("Location", "/new")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""


def test_a_message_is_sent_where_a_service_has_moved_to_if_its_url_says_so() -> None:
    with HTTPServer(("127.0.0.1", 0), Moved) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        receiver = receiver_of(f"json://127.0.0.1:{server.server_port}/?redirect=yes", 1)
        assert receiver.send(notification(change("gpu001"))) == Delivery()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("kind", "title", "of_apprise"),
    [
        (ChangeKind.OPENED, "prod: FAIL watch.silent on a", "failure"),
        (ChangeKind.WORSE, "prod: worse: fail watch.silent on a", "failure"),
        (ChangeKind.FLAPPING, "prod: flapping: fail watch.silent on a", "failure"),
        (ChangeKind.CLOSED, "prod: over: fail watch.silent on a", "success"),
    ],
)
def test_a_message_says_whether_it_is_over(kind: ChangeKind, title: str, of_apprise: str) -> None:
    message = message_of(notification(change("a", kind)))
    assert (message.title, message.kind) == (title, of_apprise)


@pytest.mark.parametrize(
    ("kind", "when"),
    [
        (ChangeKind.WORSE, "since 2023-11-14 21:13:20 UTC"),
        (ChangeKind.CLOSED, "since 2023-11-14 21:13:20 UTC, until 2023-11-14 22:13:20 UTC"),
        (ChangeKind.HAPPENED, "at 2023-11-14 22:13:20 UTC"),
    ],
)
def test_a_message_says_when_it_was_opened_and_until_when_it_was_open(kind: ChangeKind, when: str) -> None:
    assert message_of(notification(change("a", kind))).body.splitlines()[1] == when


def test_a_message_is_bounded_and_keeps_its_ids() -> None:
    storm = notification(*(change(f"odd{at * at}name", device="x" * 300) for at in range(500)))
    message = message_of(storm)
    assert len(message.title) <= MAX_TITLE
    assert len(message.body) <= MAX_BODY
    assert message.body.endswith(f"notification d0e-1, incident {storm.incident}")


def test_a_message_says_what_was_found_however_many_nodes_it_names() -> None:
    changes = [change(f"odd{at * at}name", rule="network.link") for at in range(100)]
    said = message_of(notification(*changes)).body.splitlines()[0]
    assert said.endswith(": of odd0name; expected none [network.link]")


def test_a_message_has_all_that_one_check_found_on_a_node() -> None:
    found = [f"{'nvme' * 40}{at}n1 has failed; expected health" for at in range(4)]
    joined = replace(change("gpu001", rule="storage.nvme"), message=ALSO.join(found))
    body = message_of(notification(joined)).body
    assert [words for words in found if words not in body] == []


@pytest.mark.parametrize(("url", "key"), [("pagerduty://i@a?action=map", "dedup"), ("opsgenie://apikey", "alias")])
def test_a_pager_has_one_incident_from_opened_to_closed(url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    kind = type(apprise.Apprise.instantiate(url))
    monkeypatch.setattr(kind, "notify", lambda service, **_: keys.append(getattr(service, key)) or True)
    receiver = receiver_of(url, 1)
    every = [notification(change("a", kind)) for kind in (ChangeKind.OPENED, ChangeKind.CLOSED)]
    assert [receiver.send(sent) for sent in every] == [Delivery()] * 2
    assert keys == [every[0].incident] * 2


@pytest.mark.parametrize("url", [f"nothing://{SECRET}", f"slack://{SECRET}"])
def test_a_url_that_nobody_takes_is_one_line_without_it(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "local", "--for", "1s", "--notify", "true", "--notify", url]) == 4
    error = capsys.readouterr().err
    assert error.startswith("clusterproof watch: --notify number 2 is not a URL that Apprise takes")
    assert error.count("\n") == 1
    assert SECRET not in error


def test_a_url_may_stand_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notify.args").write_text("--notify=nothing://host\n")
    assert main(["watch", "local", "--for", "1s", f"@{tmp_path / 'notify.args'}"]) == 4
    assert "--notify number 1 is not a URL that Apprise takes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--remind", "4h"], "--remind repeats notifications; expected --notify with it"),
        (["--notify", "true", "--remind", "1s"], "--remind is 1s; expected a minute or more, such as 4h"),
    ],
)
def test_a_reminder_that_cannot_be_is_refused(
    words: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "local", "--for", "1s", *words]) == 4
    assert capsys.readouterr().err == f"clusterproof watch: {said}\n"


@pytest.mark.long
def test_nothing_of_a_url_is_in_the_outbox_or_in_what_is_said(tmp_path: Path) -> None:
    with web_server() as server:
        server.status = 500
        watched = OfDay()
        with watched.sinks as sinks:
            url = f"json://ops:{SECRET}@127.0.0.1:{server.port}/{SECRET}"
            sinks.notify([receiver_of(url, 1), ReceiverProgram(["sh", "-c", f"cat > {tmp_path}/told"])], tmp_path)
            sinks.report([change("gpu001")])
    assert server.refused
    assert lines(tmp_path / "told")[0]["nodes"] == "gpu001"
    assert SECRET not in str(watched.own) + "".join(path.read_text() for path in tmp_path.iterdir())
    assert any("not delivered when the watch ended: 1 change by json; they wait in" in line for line in watched.own)
    assert json.loads((tmp_path / "outbox-1.jsonl").read_text().splitlines()[0])["outbox"] == 1


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("notify 'us", '--notify is "notify \'us": No closing quotation; expected a program and its arguments'),
        (
            "/nowhere/notify us",
            "--notify: no program '/nowhere/notify' that may be run; expected its path, or a name on PATH",
        ),
        ("/etc/passwd", "--notify: no program '/etc/passwd' that may be run"),
    ],
)
def test_what_cannot_be_run_is_one_line(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--cluster", "local", "--for", "1s", "--notify", command]) == 4
    error = capsys.readouterr().err
    assert error.startswith(f"clusterproof watch: {said}")
    assert error.count("\n") == 1


def test_no_shell_reads_the_command() -> None:
    assert arguments_of("true '$HOME; ls' *") == ["true", "$HOME; ls", "*"]
    with pytest.raises(NoReceiver):
        arguments_of("'true; true'")
