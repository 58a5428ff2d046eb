"""junitparser and junit2html read junit.xml, count what the run reports, and show the findings."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.formats.junit import suites
from tests.counterparts.installed import folder, needs
from tests.reports.reported import HOSTILE, of_each_verdict, result, run_of

pytestmark = needs("junit_readers")
COUNTED = """
import json, sys
from junitparser import JUnitXml
data = JUnitXml.fromfile(sys.argv[1])
keys = ("tests", "failures", "errors", "skipped")
declared = [{key: getattr(suite, key) for key in keys} for suite in data]
for suite in data:
    suite.update_statistics()
counted = [{key: getattr(suite, key) for key in keys} for suite in data]
cases = {case.name: [[type(one).__name__, one.message] for one in case.result] for suite in data for case in suite}
json.dump([declared, counted, cases], sys.stdout)
"""


def python(*arguments: str | Path) -> str:
    """The output of one of the programs."""
    command = [sys.executable, *arguments]
    environment = {"PYTHONPATH": str(folder("junit_readers") / "site"), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def written(where: Path, text: str) -> Path:
    """A run's JUnit file."""
    path = where / "junit.xml"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


def read(where: Path, text: str) -> Any:
    return json.loads(python("-c", COUNTED, written(where, text)))


def shown(where: Path, text: str) -> str:
    """junit2html's page for it."""
    python("-m", "junit2htmlreport", written(where, text), where / "page.html")
    return (where / "page.html").read_text(encoding="utf-8")


def test_junitparser_counts_what_the_suites_say_of_themselves(tmp_path: Path) -> None:
    declared, counted, cases = read(tmp_path, suites(run_of(of_each_verdict())))
    assert declared == counted
    assert cases["gpu.ecc"] == [["Failure", "gpu[002-003]: GPU 1: 14 errors; expected 0"]]


def test_junit2html_shows_what_was_found_and_what_to_do(tmp_path: Path) -> None:
    page = html.unescape(shown(tmp_path, suites(run_of(of_each_verdict()))))
    for text in ("gpu[002-003]: GPU 1: 14 errors; expected 0", "do: Do something.", "gpu.ecc", "prod"):
        assert text in page


@pytest.mark.parametrize("word", HOSTILE, ids=map(ascii, HOSTILE))
def test_what_a_hostile_node_says_breaks_neither(tmp_path: Path, word: str) -> None:
    text = suites(run_of([result("gpu.ecc", word, Verdict.FAIL, word), result("gpu.ecc", "gpu002")]))
    declared, counted, cases = read(tmp_path, text)
    assert declared == counted
    assert list(cases) == ["gpu.ecc"]
    page = shown(tmp_path, text)
    assert "<script>window" not in page
    assert "<img src=x" not in page
