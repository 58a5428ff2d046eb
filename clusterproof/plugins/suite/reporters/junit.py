"""`--junitxml`: pytest's own file, with the suite's verdicts."""

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
from clusterproof.reports import MAX_ATTRIBUTE, cut_of, in_words, legal

_TAGS = {Verdict.FAIL: "failure", Verdict.INCOMPLETE: "error", Verdict.NOT_APPLICABLE: "skipped"}
_HOSTNAME = re.compile(r' hostname="[^"]*"')


class JUnitReporter:
    """Rewrites the test case that pytest has just added.

    Pytest has no hook for that: it calls an error `failed on setup with "…"`, and writes no words for what passes
    unless it writes the captured output of everything. So this reaches into its LogXML, which no promise keeps as it
    is; where it is not as expected the file is pytest's own, with right verdicts and fewer words.
    """

    def __init__(self, xml: Any, is_redacted: bool, results: Sequence[Result]) -> None:
        self._xml = xml
        self._results = results
        self._is_redacted = is_redacted
        self._unreached: set[str] = set()  # nodes of which a case says so
        self._errors: list[tuple[str, Element]] = []  # of nodes that were not reached, by node

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Give the case of a result its words."""
        result: Result | None = getattr(report, "clusterproof", None)
        if result is None or result.verdict is Verdict.PASS:
            return
        case = self._xml.node_reporter(report)
        elements: list[Element] = getattr(case, "nodes", [])
        if result.verdict is Verdict.CONCERN:
            system_out = Element("system-out")
            system_out.text = legal(in_words(result))
            elements.append(system_out)
        elif elements and elements[-1].tag == _TAGS[result.verdict]:
            if result.says_unreachable:
                self._unreached.add(result.node)
            elif result.is_of_unreachable:
                self._errors.append((result.node, elements[-1]))
            elements[-1].set("message", legal(_shortened(f"{result.node}: {result.message}")))
            elements[-1].set("type", result.verdict.value)

    def _skip_known(self) -> None:
        """Of a node that was not reached one case says so; its others are no further errors, in whatever order."""
        stats: dict[str, int] = getattr(self._xml, "stats", {})
        for node, element in self._errors:
            if node in self._unreached and stats.get(element.tag):
                stats[element.tag] -= 1
                stats["skipped"] = stats.get("skipped", 0) + 1
                element.tag = "skipped"

    def _add_cut(self) -> None:
        """Of a run that was interrupted a case of its own says so: what did not end has none."""
        cut = cut_of(self._results)
        if cut:
            case = self._xml.node_reporter("interrupted")
            case.attrs.update(classname="clusterproof", name="interrupted")
            error = Element("error", message=cut.words, type=Verdict.INCOMPLETE.value)
            error.text = self._results[-1].message
            case.append(error)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        """Leave out what was stopped before its verdict: pytest writes a case without a name, which reads as a pass.

        Where names are to be hidden, hide that of this machine too.
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
    """The one of `--junitxml FILE`, over pytest's LogXML, if that is where it is expected."""
    try:
        from _pytest.junitxml import xml_key
    except ImportError:
        return None
    xml = config.stash.get(xml_key, None)
    is_known = hasattr(xml, "node_reporter") and hasattr(xml, "logfile")
    return JUnitReporter(xml, bool(config.option.redact), results) if is_known else None


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_ATTRIBUTE else f"{text[:MAX_ATTRIBUTE]}…"
