"""DCGM's diagnostic: run under load, or read from captured logs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable

from clusterproof.plugins.catalog.nvidia import severity_in_words, xid
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, number_of
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import by_hand, evidence
from clusterproof.plugins.evidence.field import each, known, reading_of, readings
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.perf.facts_logs import DiagLog, DiagTest, Result

pytestmark = [mark.gpu, mark.preflight, mark.perf, mark.hyperpod_node_debugger("G.1.b")]

NOT_PASSED = ("skip", "not run", "unknown")
FAILING = ("fail", "unless-no-reset")  # verdicts of Xids that fail by themselves: DCGM repeats no `RST: No`
PARAMETER = r"[\w.-]+=[\w.,:/+-]+"  # redacted names too
RAN = re.compile(rf"dcgmi diag -r ([1-4])(?: -p ({PARAMETER}(?:;{PARAMETER})*))? -j(?= |\Z)", re.ASCII)


def of_run(node: Node) -> str:
    """The command of the run under load, with only level and parameters taken from the node; empty for a log."""
    ran = node.evidence.collectors.get("dcgm_diag")
    command = ran.value.get("command") if ran and isinstance(ran.value, dict) else ran and ran.detail
    match = RAN.match(command) if isinstance(command, str) else None
    if not match:
        return ""
    parameters = f" -p {shlex.quote(match[2])}" if match[2] else ""
    return f"dcgmi diag -r {match[1]}{parameters} -j; echo exit: $?"


@by_hand(of_run)
@evidence("dcgmi diag -r 2 -j; echo exit: $?")
def test_dcgm_diag(node: Node) -> None:
    """DCGM diagnostic.

    With -m perf the diagnostic is run (--dcgm-level); otherwise every captured run counts. A skipped test is not a
    pass, and neither is a run that ended with an error, has a truncated log, or covered only some of the GPUs. DCGM's
    own severity decides the remedy. DCGM fails every test during which an Xid occurs: if such a test reports nothing
    else, it is weighted like the Xid itself.

    Remedy (investigate): Follow DCGM's severity: isolate means replace the node, reset means reset the GPU, config
    means correct its settings. If there is no severity, run the failed test alone (dcgmi diag -r NAME).
    """
    logs = node.dcgm_diag.logs
    failed = in_words(logs, ("fail",), lambda result: not is_of_lesser_xids(result))
    fail_if(failed, f"{failed}; expected every test to pass")
    warned = in_words(logs, ("fail", "warn"), lambda result: result.status == "warn" or is_of_lesser_xids(result))
    concern_if(warned, f"{warned}; expected every test to pass")
    noted = in_words(logs, ("pass",), lambda result: bool(result.reported))
    concern_if(noted, f"{noted}; expected no warning")
    for log in logs:
        with part:
            require_run(log)
        with part:
            require_end(log)
        with part:
            require_success(log)
    with part:
        require_all_gpus(node, logs)
    skipped = in_words(logs, NOT_PASSED)
    if skipped:
        incomplete(f"{skipped}; expected every test to run")


def require_run(log: DiagLog) -> None:
    """Raise Incomplete if a run did not take place."""
    if log.runtime_error:
        incomplete(f"DCGM could not run its diagnostic: {log.runtime_error}; expected its results")


def require_end(log: DiagLog) -> None:
    """Raise Incomplete if the log of a run is cut."""
    if not has_error(log) and (not log.is_complete or not log.tests):
        last = known(lambda: log.tests[-1].name, "a test") if log.tests else "its heading"
        incomplete(f"the dcgmi diag log stops after {last}; expected the complete table")


def require_success(log: DiagLog) -> None:
    """Raise Incomplete if dcgmi exited with an error that nothing in its log explains."""
    is_explained = has_error(log) or in_words([log], ("fail", "warn", *NOT_PASSED))
    if log.exit and is_read(log) and not is_explained:
        incomplete(f"every test passed, but dcgmi exited with status {log.exit}; expected 0")


def require_all_gpus(node: Node, logs: Iterable[DiagLog]) -> None:
    """Raise Incomplete if every run is known to have left out some of the expected GPUs."""
    ran_on = [count for log in logs if (count := reading_of(log, "gpus"))]
    try:
        due = node.expected("gpus")
    except Incomplete:
        return
    if ran_on and max(ran_on) < due:
        incomplete(f"dcgmi diag ran on {number_of(max(ran_on), 'GPU')}; expected {due}")


def is_read(log: DiagLog) -> bool:
    """Whether it is known how all tests of a run ended."""
    tests = reading_of(log, "tests")
    results = [reading_of(test, "results") for test in tests or ()]
    statuses = (readings(result, "status")[0] for of_test in results for result in of_test or ())
    return tests is not None and None not in results and all(statuses)


def has_error(log: DiagLog) -> bool:
    """Whether a run is known not to have taken place."""
    return bool(reading_of(log, "runtime_error"))


def is_of_lesser_xids(result: Result) -> bool:
    """Whether a test reports only Xids that fail no GPU: an application's, or those of a link that has recovered."""
    return bool(result.xids) and all(xid(code).verdict not in FAILING for code in result.xids)


def in_words(
    logs: Iterable[DiagLog], statuses: tuple[str, ...], counts: Callable[[Result], bool] = lambda _: True
) -> str:
    """The results with one of these statuses: `memory on GPU 3: fail (isolate: …): row remapping has failed`."""
    tests = (test for of_log in each(logs, lambda log: log.tests) for test in of_log)
    ended = each(tests, lambda test: (test, test.ending(statuses)))
    return listed(_description(test, result) for test, results in ended for result in results if counts(result))


def _description(test: DiagTest, result: Result) -> str:
    where = f" on {'GPU ' * result.device[:1].isdecimal()}{result.device}" if result.device else ""
    degrees = map(severity_in_words, each(result.reported, lambda message: message.severity))
    severities = listed(filter(None, degrees))
    severity = f" ({severities})" if severities else ""
    texts = each(result.reported, lambda message: message.text.strip())
    why = " ".join(texts).replace("; expected ", ", expected ")
    return f"{known(lambda: test.name, 'a test')}{where}: {result.status}{severity}" + (f": {why}" if why else "")
