"""All report formats agree on a run: each is read back, and compared verdict by verdict."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Iterable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

from bench.clusters import Simulated
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.reports.results import read_results
from clusterproof.reports.to_do import to_do_line
from tests.benchmarks.pairwise.pair_faults import PairFault, run_of, write_recording
from tests.builders.runs import ROOT
from tests.reports.read_back import (
    findings_in,
    named,
    of_prometheus,
    of_pytests_junit,
    of_the_grid,
    of_the_suites,
    truth,
)

BY_FINDING = ("fail", "concern")  # listed by check with its nodes, in formats for people
LISTED = (*BY_FINDING, "incomplete")
HEADLINES = {
    "demo": "16 nodes: 2 fit, 14 failed",
    "pairs": "16 nodes: 1 failed, 15 not proven (evidence is missing); 47 pairs of nodes: 1 failed",
}
NODES = [f"gpu{number:03d}" for number in range(1, 17)]
LINK = run_of(PairFault("nothing", nodes=len(NODES))).pairs[0].pair


def faults(cluster: Simulated) -> None:
    """A slow node, and two others that are slow together."""
    cluster.slow_nodes = {"n0003": 0.8}
    cluster.slow_links = {LINK: 0.7}


@pytest.fixture(scope="module", params=HEADLINES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that a run over the demo cluster wrote, or one that also measured its pairs."""
    where = tmp_path_factory.mktemp("agree")
    cluster = ["demo"]
    if request.param == "pairs":
        shutil.copytree(DEMO, where / "recording")
        write_recording(PairFault("two", faults, nodes=len(NODES)), where / "recording", NODES)
        cluster = ["replay:recording", "-m", "perf"]
    (where / "headline").write_text(HEADLINES[request.param])
    command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", "-c", str(ROOT / "pytest.toml"), "-q"]
    command += ["-p", "no:cacheprovider", str(ROOT / "checks"), "--report", ".", "--cluster", *cluster]
    command += ["--junitxml", "pytest.xml", "--html", "pytest.html", "--self-contained-html"]
    ran = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    (where / "terminal.txt").write_text(ran.stdout, encoding="utf-8")
    return where


def of_nodes(raw: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The results about nodes: pairs are in no row of a grid."""
    return [row for row in raw if "~" not in row[1]]


def test_the_grid_has_every_verdict_on_a_node(run: Path) -> None:
    assert sorted(of_the_grid(run)) == of_nodes(truth(run))


def test_pytests_junit_has_every_verdict(run: Path) -> None:
    assert sorted(of_pytests_junit(run)) == truth(run)


def test_the_suites_have_every_finding(run: Path) -> None:
    assert sorted(row for row in of_the_suites(run) if row[2] in LISTED) == findings_in(run, LISTED)


def of_pytest_html(run: Path) -> Iterable[tuple[str, ...]]:
    blob = re.search(r'data-jsonblob="([^"]*)"', (run / "pytest.html").read_text(encoding="utf-8"))
    assert blob
    for rows in json.loads(unescape(blob[1]))["tests"].values():
        for row in rows:
            if row["verdict"] in LISTED:
                yield row["check"], row["node"], row["verdict"]


def test_pytest_html_has_all_that_is_wrong(run: Path) -> None:
    assert sorted(of_pytest_html(run)) == truth(run, LISTED)


def test_prometheus_has_every_finding(run: Path) -> None:
    assert sorted(of_prometheus(run)) == findings_in(run, LISTED)


def test_prometheus_counts_every_verdict(run: Path) -> None:
    counted: Counter[tuple[str, str]] = Counter()
    for family in text_string_to_metric_families((run / "metrics.prom").read_text(encoding="utf-8")):
        for sample in family.samples:
            if sample.name == "clusterproof_results":
                counted[sample.labels["check"], sample.labels["verdict"]] += int(sample.value)
    assert +counted == Counter((check, verdict) for check, _, verdict in truth(run))


class Blocks(HTMLParser):
    """The page's findings as read without script: verdict, checks and the summary's words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str], str]] = []
        self.is_summary = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = dict(attrs)
        if tag == "details" and "data-checks" in raw:
            self.found.append((raw["class"] or "", (raw["data-checks"] or "").split(), ""))
        self.is_summary = tag in ("summary", "b") and bool(self.found)

    def handle_data(self, data: str) -> None:
        if self.is_summary:
            verdict, checks, text = self.found.pop()
            self.found.append((verdict, checks, text + data))

    def handle_endtag(self, tag: str) -> None:
        self.is_summary = self.is_summary or tag == "b"
        if tag == "summary":
            self.is_summary = False


def findings(pairs: Iterable[tuple[str, str, str]]) -> list[tuple[str, ...]]:
    """Check, node and verdict of worded findings: `3 of 16 nodes (gpu[003,007-008]), …`."""
    return sorted(
        (check, node, verdict)
        for verdict, check, text in pairs
        for node in named((re.search(r"\s(?:node|pair)s?\s+\((\S+?)\)", text) or ["", ""])[1])
    )


def in_the_page(run: Path) -> Iterable[tuple[str, str, str]]:
    for verdict, checks, text in Blocks((run / "report.html").read_text(encoding="utf-8")).found:
        if verdict in BY_FINDING:
            yield verdict, checks[0], text


def in_markdown(run: Path) -> Iterable[tuple[str, str, str]]:
    html = MarkdownIt("commonmark").enable("table").render((run / "summary.md").read_text(encoding="utf-8"))
    for row in re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL):
        verdict, check, where, *_ = re.findall(r"<t[hd]>(.*?)</t[hd]>", row)
        if verdict.rpartition(" ")[2] in BY_FINDING:
            yield verdict.rpartition(" ")[2], check, where


def in_the_mail(run: Path) -> Iterable[tuple[str, str, str]]:
    for paragraph in (run / "summary.txt").read_text(encoding="utf-8").split("\n\n"):
        match = re.match(r"(FAIL|CONCERN) (\S+): (.*)", " ".join(paragraph.split()))
        if match:
            yield match[1].lower(), match[2], match[3]


def in_the_terminal(run: Path) -> Iterable[tuple[str, str, str]]:
    text = (run / "terminal.txt").read_text(encoding="utf-8")
    for verdict, sentence, check in re.findall(
        r"^(FAIL|CONCERN)  +(\S.*?)^ +check:  (\S+)$", text, re.MULTILINE | re.DOTALL
    ):
        yield verdict.lower(), check, re.sub(r",\n +", ",", sentence)  # a long nodeset continues on the next line


@pytest.mark.parametrize("read", [in_the_page, in_markdown, in_the_mail, in_the_terminal])
def test_forms_for_people_name_every_node_that_fails_or_is_of_concern(
    run: Path, read: Callable[[Path], Iterable[tuple[str, str, str]]]
) -> None:
    assert findings(read(run)) == findings_in(run, BY_FINDING)


def test_forms_for_people_name_every_gap(run: Path) -> None:
    page = [
        (set(checks), text.partition("incomplete ")[2].partition(":")[0])
        for verdict, checks, text in Blocks((run / "report.html").read_text(encoding="utf-8")).found
        if verdict == "incomplete"
    ]
    raw = {(check, node) for checks, nodes in page for check in checks for node in named(nodes)}
    assert raw == {(check, node) for check, node, _ in findings_in(run, ["incomplete"])}
    counts = [(f"{len(checks)} checks" if len(checks) > 1 else min(checks), nodes) for checks, nodes in page]
    mail = (run / "summary.txt").read_text(encoding="utf-8")
    assert re.findall(r"^INCOMPLETE (\d+ checks|[\w.]+): (\S+):", mail, re.MULTILINE) == counts
    summary = (run / "summary.md").read_text(encoding="utf-8").replace("\\", "")
    assert re.findall(r"^\| ❔ incomplete \| (\d+ checks|[\w.]+) \| (\S+) \|", summary, re.MULTILINE) == counts


@pytest.mark.parametrize("name", ["report.html", "summary.md", "summary.txt", "terminal.txt", "pytest.html"])
def test_forms_for_people_have_the_same_sentence(run: Path, name: str) -> None:
    text = " ".join((run / name).read_text(encoding="utf-8").replace("\\", "").split())
    assert (run / "headline").read_text() in text


def test_every_form_begins_with_the_same_thing_to_do(run: Path) -> None:
    line = to_do_line(read_results(run / "results.jsonl"))
    first = " ".join((run / "summary.txt").read_text(encoding="utf-8").partition("\n\n")[0].split())
    assert line.count(" · ") > 2
    assert first.startswith(line)
    on_screen = " ".join((run / "terminal.txt").read_text(encoding="utf-8").split())
    assert all(task in on_screen for task in line.split(" · ")[:-1])
    assert line in (run / "summary.md").read_text(encoding="utf-8").replace("\\", "")
    properties = ET.parse(run / "junit.xml").iterfind(".//property[@name='to_do']")
    assert {str(entry.get("value")) for entry in properties} == {line}
