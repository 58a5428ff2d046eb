"""`--notify`: what is sent when and to whom, over a real webhook and a real mail server; no password is shown."""

from __future__ import annotations

import email
import email.policy
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import apprise
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch.notify import services
from clusterproof.plugins.watch.notify.services import within
from tests.builders.runs import LIGHT, Runs, saying
from tests.suite.reporters.devices import full_device

SECRET = "tok3n-and-passw0rd"


@dataclass
class Webhook:
    """A web server that keeps what is posted."""

    port: int = 0
    status: int = 200
    away: int = 0  # how many posts are first answered with 503
    posted: list[dict[str, Any]] = field(default_factory=list)
    location: str = ""
    got: list[str] = field(default_factory=list)
    awaits: Path | None = None  # a file that must exist by the time of a post
    was_there: list[bool] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"json://ops:{SECRET}@127.0.0.1:{self.port}/{SECRET}"


@pytest.fixture(scope="module", autouse=True)
def services_are_loaded() -> None:
    """Once, because runs in this process forget their imports, and two copies of requests do not work together."""
    assert apprise.Apprise.instantiate("json://127.0.0.1/")


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if hook.awaits:
                hook.was_there.append(hook.awaits.is_file())
            hook.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(503 if len(hook.posted) <= hook.away else hook.status)
            if hook.location:
                self.send_header("Location", hook.location)
            self.end_headers()

        def do_GET(self) -> None:
            hook.got.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield hook
        server.shutdown()
        thread.join()


@dataclass
class Mailbox:
    """A mail server that requires a password, and keeps what it is sent."""

    mails: list[email.message.EmailMessage] = field(default_factory=list)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        self.mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 kept"


@pytest.fixture
def mail() -> Iterator[tuple[str, Mailbox]]:
    def knows(server: object, session: object, envelope: object, mechanism: str, login: LoginPassword) -> AuthResult:
        return AuthResult(success=login.password == SECRET.encode())

    box = Mailbox()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(
        box, hostname="127.0.0.1", port=port, authenticator=knows, auth_require_tls=False, auth_required=True
    )
    controller.start()
    yield f"mailto://ops:{SECRET}@127.0.0.1:{port}?from=runs@example.com&to=ops@example.com", box
    controller.stop()


def over(runs: Runs, *arguments: str, **word_of_node: str) -> pytest.RunResult:
    runs.checks(test_it=LIGHT)
    return runs.over([saying(name, word) for name, word in word_of_node.items()], *arguments)


def shows_no_secret(run: pytest.RunResult, runs: Runs) -> None:
    assert SECRET not in run.stdout.str() + run.stderr.str()
    written = [path for path in runs.folder.rglob("*") if path.is_file() and path.suffix != ".args"]
    assert written
    assert all(SECRET.encode() not in path.read_bytes() for path in written)


def test_a_failure_is_one_message_to_each_and_its_password_is_nowhere(
    runs: Runs, webhook: Webhook, mail: tuple[str, Mailbox]
) -> None:
    url, box = mail
    everything = ["--junitxml=j.xml", "--html=h.html", "--log-file=log", "--log-file-level=DEBUG", "-vv", "-l"]
    run = over(runs, "--notify", webhook.url, f"--notify={url}", *everything, gpu001="bad", gpu002="pass")
    assert run.ret == 1
    (posted,) = webhook.posted
    (sent,) = box.mails
    assert posted["title"] == sent["subject"] == "small: INVESTIGATE gpu001 (word) · 1 fit"
    assert posted["type"] == "failure"
    assert "FAIL The word is wrong: 1 of 2 nodes (gpu001) → hardware" in posted["message"]
    body = sent.get_body()
    assert body is not None
    assert "FAIL The word is wrong: 1 of 2 nodes (gpu001)" in body.get_content()
    assert "warning: " not in run.stdout.str()
    shows_no_secret(run, runs)


def test_only_a_change_or_a_failure_is_sent(runs: Runs, webhook: Webhook) -> None:
    arguments = ("--history=history.sqlite", "--notify", webhook.url)
    counts = []
    for word in ("pass", "pass", "concern", "concern", "bad", "bad", "pass", "pass"):
        over(runs, *arguments, gpu001=word, gpu002="pass")
        counts.append(len(webhook.posted))
    assert counts == [0, 0, 1, 1, 2, 3, 4, 4]
    assert "1 finding new on gpu001" in webhook.posted[0]["message"]
    assert (webhook.posted[3]["type"], "gone gpu001" in webhook.posted[3]["message"]) == ("success", True)


def test_without_a_history_a_good_run_is_not_sent_and_missing_evidence_is(runs: Runs, webhook: Webhook) -> None:
    over(runs, "--notify", webhook.url, gpu001="concern")
    assert webhook.posted == []
    over(runs, "--notify", webhook.url, gpu001="incomplete")
    assert "INCOMPLETE gpu001: the word was not heard" in webhook.posted[0]["message"]


def test_where_concerns_end_the_run_the_message_says_which(runs: Runs, webhook: Webhook) -> None:
    over(runs, "--notify", webhook.url, "--concerns=fail", gpu001="concern")
    assert "CONCERN The word is wrong: 1 of 1 node (gpu001) → hardware" in webhook.posted[0]["message"]


def test_a_disk_that_was_full_is_sent(runs: Runs, webhook: Webhook) -> None:
    device = full_device(runs.folder / "full")
    run = over(runs, "--notify", webhook.url, "--report", "out", "--junitxml", str(device), gpu001="pass")
    assert run.ret == 2
    assert "exit code 2" in webhook.posted[0]["message"]
    assert "exit code 2" in (runs.folder / "out" / "summary.txt").read_text()


def test_with_workers_there_is_one_message(runs: Runs, webhook: Webhook) -> None:
    run = over(runs, "-n2", "--notify", webhook.url, gpu001="bad", gpu002="bad")
    assert len(webhook.posted) == 1
    shows_no_secret(run, runs)


def test_listing_tests_sends_nothing(runs: Runs, webhook: Webhook) -> None:
    over(runs, "--notify", webhook.url, "--collect-only", gpu001="bad")
    assert webhook.posted == []


def test_a_redacted_run_sends_no_names(runs: Runs, webhook: Webhook) -> None:
    runs.checks(test_it=LIGHT)
    runs.over([saying("hidden-a", "bad"), saying("hidden-b", "pass")], "--redact", "--notify", webhook.url)
    (posted,) = webhook.posted
    assert "hidden" not in json.dumps(posted)
    assert posted["title"].startswith("cluster: ")


def test_what_a_service_could_not_take_at_first_is_sent_again(runs: Runs, webhook: Webhook) -> None:
    webhook.away = 2
    over(runs, "--notify", webhook.url, gpu001="bad").stdout.no_fnmatch_line("*was not delivered*")
    assert len(webhook.posted) == 3


def test_what_is_not_delivered_costs_a_line_without_the_url_and_no_verdict(runs: Runs, webhook: Webhook) -> None:
    webhook.status = 500
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        nobody = f"mailto://ops:{SECRET}@127.0.0.1:{closed.getsockname()[1]}?to=a@example.com&from=b@example.com"
        run = over(runs, "--notify", webhook.url, "--notify", nobody, "-l", "-vv", gpu001="bad")
    assert run.ret == 1
    assert runs.verdicts == {"gpu001": Verdict.FAIL}
    for service in ("1 (json)", "2 (mailto)"):
        run.stdout.fnmatch_lines([f"warning: notification {service} was not delivered: *"])
    shows_no_secret(run, runs)


@pytest.mark.parametrize("url", [SECRET, f"nothing://{SECRET}", f"slack://{SECRET}", f"json://{SECRET}:99999999"])
def test_a_url_that_nobody_takes_is_refused_without_being_shown(runs: Runs, url: str) -> None:
    run = over(runs, "--notify=json://127.0.0.1/", "--notify", url, gpu001="pass")
    if run.ret != 4:  # Apprise accepts it, and nobody is there
        assert url.startswith("json")
    else:
        assert "--notify number 2 is not a URL that Apprise takes" in run.stderr.str() + run.stdout.str()
    shows_no_secret(run, runs)


def test_a_url_may_stand_in_a_file(runs: Runs, webhook: Webhook) -> None:
    (runs.folder / "secret.args").write_text(f"--notify={webhook.url}\n", encoding="utf-8")
    shows_no_secret(over(runs, "@secret.args", gpu001="bad"), runs)
    assert len(webhook.posted) == 1


def test_where_apprise_is_absent_one_line_says_how_to_get_it(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    run = over(runs, f"--notify=json://{SECRET}/", gpu001="pass")
    assert (run.ret, services.ABSENT in run.stderr.str() + run.stdout.str()) == (4, True)
    shows_no_secret(run, runs)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--report-url", "https://ops.example/r/"], "report: https://ops.example/r/small/*Z/report.html"),
        (["--report-url", "https://ops.example/r", "--report", "out"], "report: https://ops.example/r/report.html"),
        ([], "report: *:*/runs/small/*Z/report.html"),
        (["--redact"], None),
        (["--no-report"], None),
    ],
)
def test_a_message_says_where_the_page_is(
    runs: Runs, webhook: Webhook, options: list[str], expected: str | None
) -> None:
    runs.checks(test_it=LIGHT)
    runs.plain("--cluster", runs.cluster([saying("gpu001", "bad")]), f"--notify={webhook.url}", *options)
    (posted,) = webhook.posted
    lines = [line for line in posted["message"].splitlines() if line.startswith("report: ")]
    assert [fnmatch(line, expected or "") for line in lines] == ([True] if expected else [])


def test_the_page_is_there_when_the_message_arrives(runs: Runs, webhook: Webhook) -> None:
    webhook.awaits = runs.folder / "out" / "report.html"
    runs.checks(test_it=LIGHT)
    runs.plain("--cluster", runs.cluster([saying("gpu001", "bad")]), f"--notify={webhook.url}", "--report=out")
    assert len(webhook.posted) == 1
    assert webhook.was_there == [True]


def test_a_page_that_could_not_be_written_is_not_named(runs: Runs, webhook: Webhook) -> None:
    (runs.folder / "out" / "report.html").mkdir(parents=True)
    runs.checks(test_it=LIGHT)
    runs.plain("--cluster", runs.cluster([saying("gpu001", "bad")]), f"--notify={webhook.url}", "--report=out")
    (posted,) = webhook.posted
    assert "report: " not in posted["message"]


@pytest.mark.long
def test_a_service_that_does_not_answer_is_left_behind_and_an_error_is_named_by_its_type() -> None:
    never = threading.Event()

    def hang() -> str:
        never.wait()
        return ""

    def breaks() -> str:
        raise ValueError(SECRET)

    assert within(3.0, [hang, breaks, lambda: ""]) == ["no answer within 3 s", "ValueError", ""]
    never.set()


@pytest.mark.long
def test_the_page_has_an_example_of_each_service() -> None:
    page = (Path(__file__).parents[3] / "docs" / "notify.md").read_text(encoding="utf-8")
    assert all(f"`{scheme}" in page for scheme in ("slack://", "mailtos://", "sns://", "json://"))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirection_is_followed_to_the_metadata_service_or_anywhere(webhook: Webhook, status: int) -> None:
    webhook.status, webhook.location = status, f"http://127.0.0.1:{webhook.port}/latest/meta-data/iam"
    ((_, send),) = services.apprise_services([webhook.url])
    assert send(services.ServiceMessage("t", "b", "failure")) == "the service refused it or did not answer"
    assert (len(webhook.posted), webhook.got) == (1, [])
