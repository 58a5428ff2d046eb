"""What others wrote, or a node says: it is shown on one line, and imitates no verdict. What is written is private."""

from __future__ import annotations

import json
import os
import sqlite3
from argparse import Namespace
from contextlib import closing
from pathlib import Path

import pytest

from clusterproof.plugins.accept import command
from clusterproof.plugins.accept.report import report
from clusterproof.plugins.accept.report import text as screen
from clusterproof.plugins.accept.return_to_service import return_nodes
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.store import write_run
from tests.accept.returned import CLUSTER, Launched, result
from tests.accept.simulated import Nodes, acceptance

FORGED = "\x1b[2J\nFIT         gpu003\u202e"
CASE = {"case": "4711", "nodes": ["gpu001"], "suspects": [], "proof": "no_xid", "load": ""}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def is_clean(text: str) -> bool:
    """Whether it has no verdict on another node and nothing that a terminal would obey."""
    return "\nFIT         gpu003" not in text and all(char.isprintable() or char == "\n" for char in text)


def history_with(path: Path, check: str) -> Path:
    cluster = resolve(CLUSTER).name
    write_run(path, PastRun(cluster, 1.0, 2.0), [result(check, Verdict.FAIL, "gpu001")])
    return path


def test_the_name_of_a_case_imitates_no_verdict(here: Path) -> None:
    (here / "case.json").write_text(json.dumps({**CASE, "case": FORGED}))
    code, text = return_nodes([CLUSTER, "gpu001", "--case", "case.json"], Launched())
    assert (code, is_clean(text)) == (0, True)
    assert "found before, and gone: no_xid (the case of \\x1b[2J FIT gpu003\\u202e)" in text


@pytest.mark.parametrize("key", ["proof", "load"])
@pytest.mark.parametrize("proof", [FORGED, "no_xid or ", " or no_xid", ["no_xid"], 7])
def test_what_proves_a_case_names_checks(here: Path, key: str, proof: object) -> None:
    (here / "case.json").write_text(json.dumps({**CASE, key: proof}))
    launched = Launched()
    code, text = return_nodes([CLUSTER, "gpu001", "--case", "case.json"], launched)
    assert (code, text.count("\n"), launched.typed) == (4, 1, [])
    assert "expected names of checks" in text


def test_a_check_in_a_history_imitates_no_verdict(here: Path) -> None:
    path = history_with(here / "history.sqlite", f"gpu.x{FORGED}")
    code, text = return_nodes([CLUSTER, "gpu001", "--history", str(path)], Launched())
    assert (code, is_clean(text)) == (10, True)
    assert "gpu.x\\x1b[2J FIT gpu003\\u202e: the history has it" in text


@pytest.mark.parametrize("table", ["nodes", "checks"])
def test_a_name_in_a_history_that_is_no_text_is_an_error_of_one_line(here: Path, table: str) -> None:
    path = history_with(here / "history.sqlite", "gpu.no_xid")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"UPDATE {table} SET name = x'ff'")
        database.commit()
    code, text = return_nodes([CLUSTER, "gpu001", "--history", str(path)], Launched())
    assert (code, text.count("\n")) == (4, 1)
    assert "has a row that clusterproof did not write" in text


def test_the_serial_of_a_node_steers_no_terminal(tmp_path: Path) -> None:
    slow = Nodes(speed=lambda node, _run: 0.9 if node == "n3" else 1.0, serials={"n3": FORGED})
    made = acceptance(tmp_path, slow)
    made.go_on((), lambda _words: None)
    said = screen(report(made.state, made.ended, made.named, ""))
    assert "n3 (\\x1b[2J FIT" in said
    assert is_clean(said)


@pytest.mark.parametrize(("redact", "mode"), [(False, 0o600), (True, 0o644)])
def test_a_report_is_its_users_own_unless_it_is_redacted(redact: bool, mode: int, tmp_path: Path) -> None:
    (tmp_path / "into").mkdir(mode=0o755)
    before = os.umask(0o022)
    try:
        made = acceptance(tmp_path, Nodes())
        made.go_on((), lambda _words: None)
        command._write(made, "", Namespace(redact=redact, sign=None))
    finally:
        os.umask(before)
    written = [tmp_path / "into" / name for name in (command.PAGE, command.RECORD)]
    assert [path.stat().st_mode & 0o777 for path in written] == [mode, mode]
