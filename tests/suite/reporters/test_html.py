"""`--html` as a browser parses it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.reporters.html import MAX_ROWS
from tests.builders.recordings import boot, gpu, node, nvml, unreached
from tests.builders.runs import ALONE_OR_NOT, LIGHT, SAYING, USUAL, VERDICTS, WAYS, Runs, all_verdicts, saying

pytestmark = pytest.mark.any_user

WORKERS = pytest.mark.parametrize("workers", ALONE_OR_NOT)
OUTCOMES = {
    Verdict.FAIL: "Failed",
    Verdict.INCOMPLETE: "Error",
    Verdict.CONCERN: "XPassed",
    Verdict.NOT_APPLICABLE: "Skipped",
}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'>&lt;\x1b[31m\u202e</td></table>"


class Markup(HTMLParser):
    """A page's tags, its text, and the filters with their labels."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.handlers: list[str] = []
        self.blob = ""
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.blob = dict(attrs).get("data-jsonblob") or self.blob

    def handle_data(self, data: str) -> None:
        self.text += data


@dataclass
class Page:
    """A page that pytest-html wrote."""

    file: Path
    source: str = field(init=False)
    markup: Markup = field(init=False)

    def __post_init__(self) -> None:
        self.source = self.file.read_text(encoding="utf-8")
        self.markup = Markup(self.source)

    @property
    def rows(self) -> list[dict[str, Any]]:
        tests = json.loads(self.markup.blob)["tests"]
        return [row for rows in tests.values() for row in rows]

    @property
    def cells(self) -> list[list[str]]:
        """The text of every row's cells."""
        return [[Markup(cell).text for cell in row["resultsTableRow"]] for row in self.rows]

    @property
    def filters(self) -> dict[str, int]:
        """Each filter's count by label, where it is not zero."""
        spans = re.findall(r'<span class="\w+">(\d+) ([^<]*?),?</span>', self.source)
        return {label: int(number) for number, label in spans if number != "0"}


def page(runs: Runs, *arguments: str) -> Page:
    """The page of a run over a node of each verdict."""
    runs.over(all_verdicts(), "--html", "page.html", "--self-contained-html", *arguments)
    return Page(runs.folder / "page.html")


@WAYS
@WORKERS
def test_each_verdict_that_is_not_a_pass_is_one_row_worst_first(runs: Runs, checks: str, workers: list[str]) -> None:
    runs.checks(test_it=checks)
    raw = page(runs, *workers)
    expected = sorted(
        ((verdict.rank, node) for node, verdict in VERDICTS.items() if verdict is not Verdict.PASS),
        key=lambda pair: pair[0],
    )
    rows = [(row["verdict"], row["node"]) for row in raw.rows]
    assert sorted(rows) == sorted((VERDICTS[node].value, node) for _, node in expected)
    assert [word for word, _ in rows] == [VERDICTS[node].value for _, node in expected]


@WAYS
@WORKERS
def test_counters_and_filters_speak_of_verdicts(runs: Runs, checks: str, workers: list[str]) -> None:
    runs.checks(test_it=checks)
    raw = page(runs, *workers)
    assert raw.filters == {"failed": 1, "passed": 2, "not applicable": 1, "concern": 1, "incomplete": 3}
    for row in raw.rows:
        assert row["result"] == OUTCOMES[Verdict(row["verdict"])]


def test_a_row_has_what_a_person_needs(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    raw = page(runs)
    assert raw.cells[0] == [
        "Failed",
        "fail",
        "gpu002",
        "host.word",
        "hardware",
        "uname -r",
        "the word is bad; expected pass",
    ]
    assert raw.rows[0]["log"] == (
        "gpu002: the word is bad; expected pass\nby hand: uname -r\nowner: hardware\n"
        "means: A wrong word means nothing good.\ndo: Say another."
    )


def test_the_page_begins_with_the_findings_in_words_nodes_folded(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.over(
        [saying(f"gpu{number:03d}", "bad" if number < 5 else "pass") for number in range(1, 7)],
        "--html",
        "page.html",
    )
    text = " ".join(Page(runs.folder / "page.html").markup.text.split())
    assert "INVESTIGATE gpu[001-004] (word) · 2 fit" in text
    assert "6 nodes: 2 fit, 4 failed" in text
    assert "fail The word is wrong: 4 of 6 nodes (gpu[001-004])" in text
    assert "4 of 6 nodes alike: probably configuration, not hardware" in text
    assert "gpu[001-004]: the word is bad; expected pass" in text
    assert "host.word" in text


def test_the_matrix_has_a_cell_for_each_verdict_that_is_not_a_pass(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    titles = re.findall(r"<title>(gpu00\d · [^<]*)</title>", page(runs).source)
    assert [title.partition(".")[2].partition(":")[2].split(".")[0].strip() for title in titles] == [
        verdict.value for verdict in VERDICTS.values() if verdict is not Verdict.PASS
    ]
    assert titles[0] == "gpu002 · host.word: fail. the word is bad; expected pass"


@WAYS
@WORKERS
def test_nothing_that_a_node_says_becomes_markup(runs: Runs, checks: str, workers: list[str]) -> None:
    devices = SAYING + "    pytestmark = pytest.mark.gpu\n    def test_gpu(gpu): say(gpu.data['word'])"
    runs.checks(test_it=checks, test_gpu=devices)
    nodes = [
        node(
            name,
            boot=boot(HOSTILE, hostname=HOSTILE),
            platform={"vendor": "Amazon EC2", "product": HOSTILE},
            nvml=nvml(gpu(0, uuid=HOSTILE, word=HOSTILE)),
        )
        for name in ("gpu001", "<script>alert(3)</script>")
    ]
    harmless = [saying(name, "bad") for name in ("gpu001", "gpu002")]
    pages = []
    for raw in (harmless, nodes):
        runs.over(raw, "--html", "page.html", "--self-contained-html", *workers)
        pages.append(Page(runs.folder / "page.html"))
    plain, hostile = pages
    assert hostile.markup.tags == plain.markup.tags
    assert hostile.markup.handlers == plain.markup.handlers
    for row in hostile.rows:
        inside = Markup("".join([*row["resultsTableRow"], row["log"]]))
        assert set(inside.tags) == {"td", "code"}
        assert inside.handlers == []
    assert "\x1b" not in hostile.source
    assert "\u202e" not in hostile.source


def test_many_rows_of_one_kind_are_cut_and_the_page_says_so(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_ROWS, Verdict.INCOMPLETE, 3)
    runs.checks(test_it=LIGHT)
    runs.over([unreached(f"gpu{number:03d}") for number in range(1, 11)], "--html", "page.html")
    raw = Page(runs.folder / "page.html")
    assert len(raw.rows) == len(json.loads(raw.markup.blob)["tests"]) == 3
    assert raw.filters == {"incomplete": 10}
    assert "except 7 incomplete more, which only --results has" in " ".join(raw.markup.text.split())


def test_a_thousand_healthy_nodes_are_a_small_page(runs: Runs) -> None:
    devices = "\n\n".join(f"def test_{number}(node): assert node.boot.kernel" for number in range(30))
    runs.checks(test_it=devices)
    runs.over(
        [saying(f"gpu{number:04d}", "pass") for number in range(1000)], "--html", "page.html", "--self-contained-html"
    )
    raw = Page(runs.folder / "page.html")
    assert raw.rows == []
    assert raw.filters == {"passed": 30_000}
    assert len(raw.source) < 200_000


def test_somebody_elses_tests_keep_rows_of_their_own(runs: Runs) -> None:
    runs.checks(
        test_it=LIGHT,
        test_other="""
        import pytest
        @pytest.fixture
        def ground(): 1 / 0
        def test_good(): pass
        def test_bad(): assert 1 == 2
        def test_error(ground): pass
        @pytest.mark.skip(reason="<b>not now</b>")
        def test_skipped(): pass
        """,
    )
    raw = page(runs)
    others = {row["check"]: row["verdict"] for row in raw.rows if not row["node"]}
    assert others == {
        "test_other.py::test_good": "passed",
        "test_other.py::test_bad": "failed",
        "test_other.py::test_error": "error",
        "test_other.py::test_skipped": "skipped",
    }
    assert raw.filters == {
        "failed": 2,
        "passed": 3,
        "not applicable or skipped": 2,
        "concern": 1,
        "incomplete or in error": 4,
    }
    assert {len(row["resultsTableRow"]) for row in raw.rows} == {7}


def test_a_file_that_cannot_be_collected_is_a_row(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_broken="import no_such_module")
    raw = page(runs, "--continue-on-collection-errors")
    assert raw.rows[0]["result"] == "Error"
    assert raw.rows[0]["check"] == "test_broken.py"
    assert "cluster-wide checks: not proven" in raw.markup.text
    assert len(raw.rows) == 7


def test_what_a_check_printed_is_below_its_words(runs: Runs) -> None:
    runs.checks(test_it=USUAL.replace("say(node.boot.kernel)", "print('<b>looked</b>'); say(node.boot.kernel)"))
    log = page(runs).rows[0]["log"]
    assert log.startswith("gpu002: the word is bad")
    assert "&lt;b&gt;looked&lt;/b&gt;" in log


def test_without_html_nothing_of_it_is_loaded(runs: Runs) -> None:
    runs.checks(
        test_it=LIGHT,
        test_other="import sys\ndef test(): assert 'clusterproof.plugins.suite.reporters.html' not in sys.modules",
    )
    process = runs.started("--cluster", runs.cluster([saying("gpu001", "pass")]), "-q", "-p", "no:html")
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
