"""The verdicts in each report format, read back from a run's folder."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import read_results

ALL = tuple(verdict.value for verdict in Verdict)


def truth(folder: Path, verdicts: Iterable[str] = ALL) -> list[tuple[str, ...]]:
    """Check, node and verdict of each result."""
    results = read_results(folder / "results.jsonl")
    return sorted(
        (result.check, result.node, result.verdict.value) for result in results if result.verdict.value in verdicts
    )


def findings_in(folder: Path, verdicts: Iterable[str] = ALL) -> list[tuple[str, ...]]:
    """Check, node and verdict of each result, repeated for every verdict among its findings."""
    results = [single for result in read_results(folder / "results.jsonl") for single in result.by_verdict]
    return sorted(
        (single.check, single.node, single.verdict.value) for single in results if single.verdict.value in verdicts
    )


def named(nodes: str) -> Iterable[str]:
    """The nodes of a nodeset, or pairs."""
    return nodes.split(",") if "~" in nodes else expand(nodes)


def block(page: str) -> dict[str, object]:
    """The data for the page's script."""
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert text
    raw: dict[str, object] = json.loads(text[1])
    return raw


def of_the_grid(folder: Path) -> Iterable[tuple[str, ...]]:
    raw = block((folder / "report.html").read_text(encoding="utf-8"))
    verdict_of_letter = {verdict.letter: verdict.value for verdict in Verdict}
    names = [*raw["nodes"], raw["cluster"]]  # type: ignore[misc]
    for check, letters in zip(raw["checks"], raw["letters"], strict=True):  # type: ignore[call-overload]
        for name, letter in zip(names, letters, strict=True):
            if letter != " ":
                yield check[0], name, verdict_of_letter[letter]


def of_the_suites(folder: Path) -> Iterable[tuple[str, ...]]:
    for case in ET.parse(folder / "junit.xml").getroot().iter("testcase"):
        for block_of_verdict in (case[0].text or "").split("\n\n"):
            raw = dict(line.split(": ", 1) for line in block_of_verdict.splitlines()[:3])
            assert raw["check"] == case.get("name")
            for node in named(raw["pairs" if "pairs" in raw else "nodes"]):
                assert ("~" in node) is ("pairs" in raw)
                yield raw["check"], node, raw["verdict"]


def of_pytests_junit(folder: Path) -> Iterable[tuple[str, ...]]:
    for case in ET.parse(folder / "pytest.xml").getroot().iter("testcase"):
        raw = {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}
        yield raw["check"], raw["pair" if "pair" in raw else "node"], raw["verdict"]


def of_prometheus(folder: Path) -> Iterable[tuple[str, ...]]:
    for family in text_string_to_metric_families((folder / "metrics.prom").read_text(encoding="utf-8")):
        for sample in family.samples:
            if sample.name == "clusterproof_finding":
                raw = sample.labels
                yield raw["check"], raw["pair" if "pair" in raw else "node"], raw["verdict"]
