"""Annotations of a pull request: one line for each finding, which no text from a node can end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.reports import formats
from clusterproof.reports.formats.markdown import MAX_EACH, annotation_lines
from tests.builders.runs import ROOT
from tests.reports.reported import HOSTILE, of_each_verdict, result

pytestmark = pytest.mark.long

LINE = re.compile(r"::(error|warning) title=[^:,\r\n]*::[^\r\n]*")
CATALOG = Catalog.of(NO_POLICY)


def test_what_failed_is_an_error_and_a_concern_a_warning() -> None:
    lines = list(annotation_lines(of_each_verdict(), CATALOG))
    assert [line.split()[0] for line in lines] == ["::error", "::error", "::warning"]
    assert lines[0].startswith("::error title=Title of ecc%3A 2 of 7 nodes (gpu[002-003])%2C 2 GPUs::")
    assert "gpu[002-003]: GPU 1: 14 errors; expected 0%0Ado: Do something.%0Acheck: gpu.ecc" in lines[0]


@pytest.mark.parametrize("word", HOSTILE)
def test_what_a_node_says_stays_in_its_line(word: str) -> None:
    message = f"{word}\n::stop-commands::x\r::set-env name=A::b"
    (line,) = annotation_lines([result("gpu.ecc", word, Verdict.FAIL, message)], CATALOG)
    assert LINE.fullmatch(line)


def test_there_are_as_many_as_github_shows() -> None:
    results = [result(f"gpu.check_{number}", "gpu001", Verdict.FAIL, "ill") for number in range(MAX_EACH + 5)]
    lines = list(annotation_lines(results, CATALOG))
    assert len(lines) == MAX_EACH
    assert lines[-1] == "::error title=clusterproof::6 more checks fail; the summary has all"


def test_observations_that_an_annotation_leaves_out_are_counted() -> None:
    results = [result("gpu.ecc", f"gpu{number:03}", Verdict.CONCERN, f"{number} errors") for number in range(13)]
    (line,) = annotation_lines(results, CATALOG)
    assert "gpu009: 9 errors%0A… and 3 more%0Ado: " in line


def test_as_many_checks_as_there_is_room_for_are_all_shown() -> None:
    results = [result(f"gpu.check_{number}", "gpu001", Verdict.CONCERN, "ill") for number in range(MAX_EACH)]
    lines = list(annotation_lines(results, CATALOG))
    assert [line.split()[0] for line in lines] == ["::warning"] * MAX_EACH
    assert "more" not in lines[-1]


@pytest.mark.parametrize(("variable", "count"), [("true", 10), ("", 0)])
def test_a_run_prints_them_where_github_runs_it(variable: str, count: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--cluster", "demo", "--report", str(tmp_path / "out")]
    env = {**os.environ, "GITHUB_ACTIONS": variable, "GITHUB_STEP_SUMMARY": ""}
    ran = subprocess.run([*command, "-p", "no:cacheprovider"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert len(LINE.findall(ran.stdout)) == count


MAIN = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"
COMMAND = re.compile(r"^\s*::(?!error title|warning title)|##\w*\[", re.MULTILINE)


@pytest.mark.parametrize("words", [("clusterproof", "check"), ("pytest", "--cluster")], ids=" ".join)
def test_what_a_node_says_is_no_command_however_its_lines_are_folded(words: tuple[str, str], tmp_path: Path) -> None:
    shutil.copytree(DEMO, tmp_path / "recording")
    for path in (tmp_path / "recording" / "nodes").glob("gpu00[12].json"):
        message = "".join(f"{'x' * length} ::add-mask::x ##[error]y " for length in range(20))
        path.write_text(path.read_text().replace('"96.00.A5.00.01"', json.dumps(message), 3))
    of_package = ("--pyargs", "clusterproof.checks") if words[0] == "pytest" else ()
    start = ("-m", "pytest") if words[0] == "pytest" else ("-c", MAIN)
    command = [sys.executable, *start, *words[1:], "replay:recording", "--report", "out", *of_package]
    env = {**os.environ, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "", "COLUMNS": "80"}
    ran = subprocess.run([*command, "-k", "vbios"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "add-mask" in ran.stdout, ran.stdout + ran.stderr
    assert LINE.search(ran.stdout)
    assert not COMMAND.search(ran.stdout)


def test_of_a_summary_that_github_would_not_show_its_beginning_is_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "job.md"))
    monkeypatch.setattr(formats, "MAX_JOB_SUMMARY", 15)
    (tmp_path / "summary.md").write_text("# one\n\n- ✅\n- ✅\n")
    formats.add_to_job(tmp_path / "summary.md")
    note = "_Only the beginning, as GitHub shows no more; all of it is in summary.md of the report._\n\n"
    assert (tmp_path / "job.md").read_text() == f"{note}# one\n\n- ✅\n"
