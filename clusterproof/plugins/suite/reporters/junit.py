"""`--junitxml`: pytest's own file, with the verdicts' own wording."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.recording import write_whole
from clusterproof.reports import MAX_ATTRIBUTE, cut_of, legal, result_text

_TAGS = {Verdict.FAIL: "failure", Verdict.INCOMPLETE: "error", Verdict.NOT_APPLICABLE: "skipped"}
_HOSTNAME = re.compile(r' hostname="[^"]*"')


class JUnitReporter:
    """Rewrites what pytest has just added to a test case.

    Pytest has no hook for that: it calls an error `failed on setup with "…"`, and writes no text for what passes unless
    it writes the captured output of everything. So this modifies its LogXML, a private API; if that is not as expected,
    the file is pytest's own, with correct verdicts and less text.
    """

    def __init__(self, xml: Any, is_redacted: bool, results: Sequence[Result]) -> None:
        self._xml = xml
        self._results = results
        self._is_redacted = is_redacted
        self._unreached: set[str] = set()  # nodes with a case that reports this
        self._errors: list[tuple[str, Element]] = []  # of nodes that were not reached, by node

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set the text of a result's case."""
        result: Result | None = getattr(report, "clusterproof", None)
        if result is None or result.verdict is Verdict.PASS:
            return
        case = self._xml.node_reporter(report)
        elements: list[Element] = getattr(case, "nodes", [])
        if result.verdict is Verdict.CONCERN:
            system_out = Element("system-out")
            system_out.text = legal(result_text(result))
            elements.append(system_out)
        elif elements and elements[-1].tag == _TAGS[result.verdict]:
            if result.reports_unreachable:
                self._unreached.add(result.node)
            elif result.is_of_unreachable:
                self._errors.append((result.node, elements[-1]))
            elements[-1].set("message", legal(_shortened(f"{result.node}: {result.message}")))
            elements[-1].set("type", result.verdict.value)

    def _skip_known(self) -> None:
        """Of an unreachable node only one case is an error; the others become skips, in whatever order they arrive."""
        stats: dict[str, int] = getattr(self._xml, "stats", {})
        for node, element in self._errors:
            if node in self._unreached and stats.get(element.tag):
                stats[element.tag] -= 1
                stats["skipped"] = stats.get("skipped", 0) + 1
                element.tag = "skipped"

    def _add_cut(self) -> None:
        """Add a case for an interrupted run, because unfinished checks have none."""
        cut = cut_of(self._results)
        if cut:
            case = self._xml.node_reporter("interrupted")
            case.attrs.update(classname="clusterproof", name="interrupted")
            error = Element("error", message=cut.description, type=Verdict.INCOMPLETE.value)
            error.text = self._results[-1].message
            case.append(error)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Remove cases stopped before their verdict: pytest writes them without a name, which reads as a pass.

        If names are redacted, hide this machine's name too.
        """
        cases: list[Any] = getattr(self._xml, "node_reporters_ordered", [])
        self._skip_known()
        self._add_cut()
        cases[:] = [case for case in cases if getattr(case, "attrs", True)]  # a finished one has none any more
        yield
        if self._is_redacted:
            path = Path(self._xml.logfile)
            if path.exists():
                write_whole(path, _HOSTNAME.sub(' hostname="redacted"', path.read_text(encoding="utf-8"), count=1))


def reporter(config: pytest.Config, _cluster: Cluster, results: Sequence[Result]) -> JUnitReporter | None:
    """The reporter of `--junitxml FILE`, using pytest's LogXML if it is where it is expected."""
    try:
        from _pytest.junitxml import xml_key
    except ImportError:
        return None
    xml = config.stash.get(xml_key, None)
    is_known = hasattr(xml, "node_reporter") and hasattr(xml, "logfile")
    return JUnitReporter(xml, bool(config.option.redact), results) if is_known else None


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_ATTRIBUTE else f"{text[:MAX_ATTRIBUTE]}…"
