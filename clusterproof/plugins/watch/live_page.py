"""`--listen`: a run's report page, generated for browsers from the current state of the watched nodes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from ipaddress import ip_address
from itertools import groupby
from operator import attrgetter
from typing import Any

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Finding, Result, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.watch import Key, RuleResult
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.findings import evaluated
from clusterproof.plugins.watch.own_health import SAMPLED_RULES

HEADERS = [
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-cache"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "SAMEORIGIN"),
]
STALLED_TICKS, MIN_STALLED_S = 3, 60.0  # without a tick for so long, the watch no longer follows its nodes
Open = Iterable[tuple[Key, RuleResult]]


class LivePage:
    """The latest results of all checks on each node. Updated by the watch's thread, served from others."""

    def __init__(
        self, evaluator: Evaluator, every_s: float, is_open: Callable[[], Open], command: tuple[str, ...]
    ) -> None:
        """`command` checks the same cluster once."""
        self._every_s = every_s
        self._evaluator, self._is_open, self._command = evaluator, is_open, command
        evaluator.on_results = self.update
        self._began = time.time()
        self._results: dict[str, Mapping[str, Sequence[Result]]] = {}  # by node and check; replaced, never modified
        self._found: dict[tuple[str, str], frozenset[str]] = {}  # devices with findings of these
        self._actions: dict[tuple[str, str], str] = {}  # requested by their last failure
        self._changes = 0
        self._ticked = time.monotonic()
        self._made: tuple[str, bytes] = ("", b"")  # version and content of the last page
        self._making = threading.Lock()

    @property
    def version(self) -> str:
        """A value that changes whenever a check's result changes."""
        return f"{self._began:.0f}-{self._changes}"

    def ticked(self) -> None:
        """The watch has completed a tick."""
        self._ticked = time.monotonic()

    def update(self, node: str, results: Iterable[Result], open_states: Collection[tuple[str, str]]) -> None:
        """Update some checks' results on a node; `open_states` are the devices and checks with findings."""
        by_check = {check: tuple(group) for check, group in groupby(results, attrgetter("check"))}
        for check in by_check:
            self._found[node, check] = frozenset(device for device, by in open_states if by == check)
        self._actions.update(
            {(node, check): result.action for check, group in by_check.items() for result in group if result.action}
        )
        before = self._results.get(node, {})
        self._results[node] = {**before, **by_check}
        if any(_messages(before.get(check, ())) != _messages(group) for check, group in by_check.items()):
            self.changed()

    def changed(self) -> None:
        """Mark the page as changed."""
        self._changes += 1

    def results(self) -> list[Result]:
        """All current results, of checks and of the samples' rules."""
        of_nodes = list(self._results.copy().values())
        latest = [
            result for results_by_check in of_nodes for results in results_by_check.values() for result in results
        ]
        is_open = list(self._is_open())
        return [*self._with_open(latest, is_open), *_sampled_results(is_open)]

    def _with_open(self, results: Iterable[Result], is_open: Open) -> Iterator[Result]:
        """Each result with open states that could not be evaluated since: what is unknown is not over."""
        open_of: dict[tuple[str, str], list[Finding]] = {}
        for key, seen in is_open:
            if key.device in self._found.get((key.node, key.rule), ()):
                continue
            action = self._actions.get((key.node, key.rule), "") if seen.verdict is Verdict.FAIL else ""
            devices = (key.device,) if key.device else ()
            open_of.setdefault((key.node, key.rule), []).append(
                Finding(seen.verdict, seen.message.removeprefix(f"{key.device}: "), devices, "", action)
            )
        for result in results:
            of_check = open_of.get((result.node, result.check))
            yield _with_unknown(result, of_check) if of_check else result

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        """Answer a browser as a WSGI app: only the version, if it asked for that or has the current page."""
        refusal = why_refused(environ)
        if refusal:
            start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"{refusal}\n".encode()]
        version = self.version
        headers = [*HEADERS, ("ETag", f'"{version}"')]
        if environ["REQUEST_METHOD"] == "HEAD":
            is_stalled = time.monotonic() - self._ticked > max(MIN_STALLED_S, STALLED_TICKS * self._every_s)
            start_response("503 Service Unavailable" if is_stalled else "200 OK", headers)
            return []
        if environ.get("HTTP_IF_NONE_MATCH") == f'"{version}"':
            start_response("304 Not Modified", headers)
            return []
        made, page = self._page(version)
        start_response("200 OK", [*HEADERS, ("ETag", f'"{made}"'), ("Content-Length", str(len(page)))])
        return [page]

    def _page(self, version: str) -> tuple[str, bytes]:
        """The page and its version: the previous page while another request generates a newer one."""
        from clusterproof.reports.formats.html import document
        from clusterproof.reports.run import Run

        if not self._making.acquire(blocking=not self._made[0]):
            return self._made
        try:
            if self._made[0] != version:
                cluster, policy = self._evaluator.cluster, self._evaluator.policy
                facts = ClusterFacts(cluster, NodeEvidence(cluster.name), self._evaluator.current(), policy)
                run = Run(
                    facts=facts,
                    results=self.results(),
                    began=datetime.now(timezone.utc),
                    seconds=time.time() - self._began,
                    exit_code=0,
                    command=self._command,
                    left_out={},
                    site=policy.site,
                )
                self._made = version, document(run, live=version).encode("utf-8", "backslashreplace")
            return self._made
        finally:
            self._making.release()


def why_refused(environ: Mapping[str, Any]) -> str:
    """Why a browser is refused: the page is for this machine only, under no name that another site may have taken."""
    host = re.sub(r":\d*$", "", str(environ.get("HTTP_HOST", ""))).strip("[]")
    if not _is_loopback(str(environ.get("REMOTE_ADDR", ""))):
        return "the page is for the machine that watches; expected ssh -L 9188:127.0.0.1:9188 to it, or /metrics"
    if host != "localhost" and not _is_address(host):
        return f"the page is not served as {host[:80]!r}; expected localhost, or an address"
    return ""


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _is_loopback(text: str) -> bool:
    return _is_address(text) and ip_address(text).is_loopback


def _with_unknown(result: Result, is_open: Sequence[Finding]) -> Result:
    """The result with open states about which it says nothing: for some devices, or for the whole node."""
    unknown = {device for device, _ in evaluated([result])[1]}
    kept = [finding for finding in is_open if "" in unknown or unknown.issuperset(finding.devices or ("",))]
    return with_findings(result, grouped((*kept, *result.findings))) if kept else result


def _messages(results: Iterable[Result]) -> list[tuple[Verdict, str]]:
    return [(result.verdict, result.message) for result in results]


def _sampled_results(is_open: Open) -> Iterator[Result]:
    for key, result in is_open:
        if key.rule in SAMPLED_RULES:
            finding = Finding(result.verdict, result.message, (key.device,) if key.device else ())
            about = Result(key.rule, key.node, result.verdict, title=SAMPLED_RULES[key.rule], subsystem="node")
            yield with_findings(about, (finding,))
