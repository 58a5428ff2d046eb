"""`--listen`: the page with a watch's current state; it updates, and says when the watch no longer answers."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import live_page
from clusterproof.plugins.watch.http_server import Address, Listener
from clusterproof.plugins.watch.live_page import LivePage
from clusterproof.plugins.watch.own_health import SILENT
from tests.testbed.browser import Browser, browser
from tests.testbed.needs import needs_chromium
from tests.watch.days import BRAKE, NODE, NOTHING, Day, evidence, slowed

pytestmark = pytest.mark.any_user

TIMEOUT_S = 600.0
XID_79 = "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
XID_48 = "NVRM: Xid (PCI:0000:53:00): 48, pid='<unknown>', name=<unknown>, DBE (double bit error)"
COMMAND = ("clusterproof", "check", "ssh:gpu001")


@dataclass
class Served:
    """A watch of one node, and its page."""

    day: Day = field(default_factory=Day)

    def __post_init__(self) -> None:
        self.page = LivePage(self.day.watch.evaluator, 10.0, lambda: self.day.watch.states.open.items(), COMMAND)
        self.day.visit()
        self.listener = Listener(Address.of(":0"), {"/": self.page})


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.listener.close()


def unread(collector: str) -> NodeEvidence:
    """A node of which all but one collector was read."""
    whole = evidence()
    return replace(whole, collectors={**whole.collectors, collector: Collected(Status.BROKE, None)})


def answered(url: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
    """Status, version and body."""
    request = urllib.request.Request(url, headers={"If-None-Match": headers.get("known", "")}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.headers["ETag"], answer.read()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.headers["ETag"] or "", refusal.read()


@pytest.mark.long
def test_the_page_is_made_again_only_when_something_else_is_said(served: Served) -> None:
    status, version, page = answered(served.listener.url)
    assert (status, b"gpu001" in page) == (200, True)
    served.day.ticks(5)
    assert answered(served.listener.url, known=version) == (304, version, b"")
    assert answered(served.listener.url, "HEAD") == (200, version, b"")
    served.day.log(XID_79)
    status, later, page = answered(served.listener.url, known=version)
    assert (status, b"Xid 79" in page) == (200, True)
    assert later != version


@pytest.mark.long
def test_while_a_page_is_made_the_one_before_is_answered_and_nobody_waits(served: Served) -> None:
    _, version, page = answered(served.listener.url)
    served.day.log(XID_79)
    with served.page._making:
        assert answered(served.listener.url) == (200, version, page)
    assert answered(served.listener.url)[1] != version


@pytest.mark.long
def test_what_no_check_says_of_the_samples_is_on_it_too(served: Served) -> None:
    served.day.tick()
    served.day.silence(60)
    (result,) = [verdict for verdict in served.page.results() if verdict.check == SILENT]
    assert (result.node, result.verdict) == (NODE, Verdict.INCOMPLETE)
    assert result.message.startswith("no sample for 60 s")


@pytest.mark.long
@pytest.mark.parametrize(
    "visit",
    [NodeEvidence(NODE, unreached=Unreached.REFUSED), unread("kernel_log")],
    ids=["a node that is not reached", "a kernel log that is not read"],
)
def test_what_a_full_check_cannot_evaluate_is_not_over_on_it(served: Served, visit: NodeEvidence) -> None:
    served.day.log(XID_79)
    (before,) = [result for result in served.page.results() if result.check == "gpu.no_xid"]
    served.day.said += served.day.watch.evidence({NODE: visit}, served.day.now)
    (after,) = [result for result in served.page.results() if result.check == "gpu.no_xid"]
    assert (after.verdict, after.action) == (Verdict.FAIL, before.action)
    assert "Xid 79 (GPU has fallen off the bus)" in after.message
    assert b"Xid 79" in answered(served.listener.url)[2]


@pytest.mark.long
@pytest.mark.parametrize("again", [(), (XID_79,)], ids=["lost with the log's beginning", "there still"])
def test_what_else_a_check_finds_hides_nothing_that_is_open_and_repeats_nothing(
    served: Served, again: tuple[str, ...]
) -> None:
    served.day.log(XID_79)
    served.day.visit(kernel_log={"lines": [[100.0, line] for line in (XID_48, *again)], "truncated": True})
    (shown,) = [result for result in served.page.results() if result.check == "gpu.no_xid"]
    assert {finding.verdict for finding in shown.findings} == {Verdict.FAIL, Verdict.INCOMPLETE}
    assert [shown.message.count(xid) for xid in ("Xid 48 (Double", "Xid 79 (GPU has")] == [1, 1]


@pytest.mark.long
def test_a_check_that_finds_one_device_and_could_not_look_at_all_hides_no_other_that_is_open(served: Served) -> None:
    ecc = "gpu.no_uncorrected_ecc"
    served.day.tick({5: {"ecc_uncorrected_dram": 14, "ecc_uncorrected_total": 14}})
    (before,) = [result for result in served.page.results() if result.check == ecc and result.devices == ("GPU 5",)]
    findings = (Finding(Verdict.FAIL, "2 in SRAM; expected 0", ("GPU 1",)), Finding(Verdict.INCOMPLETE, "not read"))
    served.page.update(NODE, [with_findings(before, findings)], [("GPU 1", ecc)])
    (shown,) = [result for result in served.page.results() if result.check == ecc]
    assert [finding.line for finding in shown.findings] == [
        f"GPU 5: {before.findings[0].message}",
        "GPU 1: 2 in SRAM; expected 0",
        "not read",
    ]


@pytest.mark.long
def test_a_check_that_is_evaluated_again_replaces_what_it_said(served: Served) -> None:
    before = {result.check: result.verdict for result in served.page.results()}
    served.day.log(XID_79)
    after = {result.check: result.verdict for result in served.page.results()}
    assert after == {**before, "gpu.no_xid": Verdict.FAIL, **{name: after[name] for name in after.keys() - before}}


@pytest.mark.long
def test_a_watch_that_completes_no_tick_is_not_live(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "MIN_STALLED_S", -1.0)
    monkeypatch.setattr(live_page, "STALLED_TICKS", 0)
    assert answered(served.listener.url, "HEAD")[0] == 503
    monkeypatch.undo()
    served.page.ticked()
    assert answered(served.listener.url, "HEAD")[0] == 200


@pytest.mark.long
def test_a_throttle_that_is_over_is_over_on_the_page(served: Served) -> None:
    served.day.tick({3: {"clocks_event_reasons": BRAKE, "slowdown": slowed(served.day.now, 0.5)}})
    assert [result.verdict for result in served.page.results() if result.check == "gpu.no_throttle"] != [Verdict.PASS]
    served.day.tick({3: {"clocks_event_reasons": NOTHING, "slowdown": None}})
    assert [result.verdict for result in served.page.results() if result.check == "gpu.no_throttle"] == [Verdict.PASS]


@pytest.mark.parametrize(
    ("host", "client", "words"),
    [
        ("127.0.0.1:9188", "127.0.0.1", ""),
        ("localhost:9188", "127.0.0.1", ""),
        ("[::1]:9188", "::1", ""),
        ("evil.example.com", "127.0.0.1", "is not served as 'evil.example.com'"),
        ("", "127.0.0.1", "is not served as ''"),
        ("10.0.0.1:9188", "10.0.0.7", "is for the machine that watches"),
        ("10.0.0.1:9188", "", "is for the machine that watches"),
    ],
)
def test_the_page_is_for_the_machine_that_watches_and_under_no_foreign_name(host: str, client: str, words: str) -> None:
    assert words in live_page.why_refused({"HTTP_HOST": host, "REMOTE_ADDR": client})
    assert bool(words) is bool(live_page.why_refused({"HTTP_HOST": host, "REMOTE_ADDR": client}))


@pytest.mark.long
def test_another_path_is_answered_with_those_that_there_are(served: Served) -> None:
    assert answered(f"{served.listener.url}etc/passwd")[::2] == (404, b"expected one of /\n")


@needs_chromium
def test_in_a_browser_it_follows_the_watch_and_says_when_that_has_ended(served: Served) -> None:
    with browser() as opened:
        opened.driver.get(f"{served.listener.url}#q=gpu001")
        assert "live" in opened.find("header .facts").text
        served.day.log(XID_79)
        awaited(opened, "details.fail", "Xid 79")
        assert opened.driver.current_url.endswith("#q=gpu001")
        assert opened.complaints() == []
        served.listener.close()
        awaited(opened, "header .facts", "The watch has not answered since")


def awaited(opened: Browser, css: str, text: str) -> None:
    """Wait until an element of the page has this text."""
    script = "return [...document.querySelectorAll(arguments[0])].some((one) => one.textContent.includes(arguments[1]))"
    WebDriverWait(opened.driver, TIMEOUT_S).until(lambda _: opened.run(script, css, text))
