"""DCGM's own diagnostic: run under load, or out of its captured logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from clusterproof.plugins.catalog.dcgm import severity_in_words
from clusterproof.plugins.catalog.xids import xid
from clusterproof.plugins.core.listed import listed
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, incomplete
from clusterproof.plugins.evidence.dcgm.facts import DiagLog, DiagTest, Result
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.gpu, mark.preflight, mark.perf, mark.hyperpod_node_debugger("G.1.b")]

NOT_PASSED = ("skip", "not run", "unknown")


@evidence("dcgmi diag -r 2 -j; echo exit: $?")
def test_dcgm_diag(node: Node) -> None:
    """DCGM diagnostic.

    With -m perf it is run (--dcgm-level); otherwise every captured run counts. A skipped test is not a pass, nor is a
    run that ended with an error, or whose log is cut off. DCGM's own severity says what to do. DCGM fails every test
    during which an Xid occurs: if such a test reports nothing else, it counts as much as the Xid itself.

    Remedy (investigate): Do what the severity says: isolate means replace the node, reset means reset the GPU, config
    means correct its settings. If there is none, run the failed test alone (dcgmi diag -r NAME).
    """
    logs = node.dcgm_diag.logs
    failed = in_words(logs, ("fail",), lambda result: not is_of_lesser_xids(result))
    assert not failed, f"{failed}; expected every test to pass"
    require_end(logs)
    warned = in_words(logs, ("fail", "warn"))
    if warned:
        concern(f"{warned}; expected every test to pass")
    require_success(logs)


def require_end(logs: Iterable[DiagLog]) -> None:
    """Raise Incomplete where a run did not take place, or its log is cut."""
    for log in logs:
        if log.runtime_error:
            incomplete(f"DCGM could not run its diagnostic: {log.runtime_error}; expected its results")
        if not log.is_complete or not log.tests:
            last = log.tests[-1].name if log.tests else "its heading"
            incomplete(f"the log of dcgmi diag ends after {last}; expected the end of its table")


def require_success(logs: Iterable[DiagLog]) -> None:
    """Raise Incomplete where a run without a finding proves nothing."""
    skipped = in_words(logs, NOT_PASSED)
    if skipped:
        incomplete(f"{skipped}; expected every test to run")
    ended = next((log.exit for log in logs if log.exit), 0)
    if ended:
        incomplete(f"every test passes, and dcgmi ended with exit status {ended}; expected 0")


def is_of_lesser_xids(result: Result) -> bool:
    """Whether a test reports only Xids that fail no GPU: an application's, or those of a link that has recovered."""
    return bool(result.xids) and all(xid(code).verdict != "fail" for code in result.xids)


def in_words(
    logs: Iterable[DiagLog], statuses: tuple[str, ...], counts: Callable[[Result], bool] = lambda _: True
) -> str:
    """The results that are one of these: `memory on GPU 3: fail (isolate: …): row remapping has failed`."""
    results = ((test, result) for log in logs for test in log.tests for result in test.ending(statuses))
    return listed(_words(test, result) for test, result in results if counts(result))


def _words(test: DiagTest, result: Result) -> str:
    where = f" on GPU {result.gpu}" if result.gpu[:1].isdigit() else f" on {result.gpu}" if result.gpu else ""
    severity = next((data for data in (severity_in_words(one.severity) for one in result.messages) if data), "")
    why = " ".join(message.text.strip() for message in result.messages).replace("; expected ", ", expected ")
    return f"{test.name}{where}: {result.status}" + (f" ({severity})" if severity else "") + (f": {why}" if why else "")
