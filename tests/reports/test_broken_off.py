"""Interrupted runs: no report calls a node fit whose checks did not all end, and each says it was interrupted."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.cuts import FULL_DISK, MAX_FAIL, WORKER, Cut, Ran, cut_run
from tests.builders.runs import DEVICES, LIGHT, USUAL, VERDICTS, Runs, all_verdicts, saying
from tests.reports.interrupted import STALL, wait_for
from tests.tiers import each_with_some

NEEDS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare: a file system of its own is full"
)
OF_DISK = {
    "--record": "record",
    "--results": "results.jsonl",
    "--report": "report",
    "--junitxml": "junit.xml",
    "--html": "page.html",
    "--self-contained-html --html": "page.html",
    "--bundle": "kept.tar.zst",
    "--history": "history.sqlite",
}
REDACTED_OR_NOT = each_with_some([option for option in OF_DISK if option != "--history"], ["", "--redact"])
REDACTED_OR_NOT.append(pytest.param("--history", ""))  # it remembers no redacted names


def in_shell(runs: Runs, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell command line in which `$PYTEST` runs the suite."""
    command = f"{sys.executable} -m pytest -p clusterproof.plugins.cluster -p no:cacheprovider"
    environment = {**os.environ, "PYTEST": command}
    return subprocess.run(["bash", "-c", script], cwd=runs.folder, env=environment, capture_output=True, text=True)


@NEEDS_ROOT
@pytest.mark.parametrize(("option", "redact"), REDACTED_OR_NOT)
def test_a_full_disk_costs_what_lies_on_it_and_no_verdict(runs: Runs, option: str, redact: str) -> None:
    runs.checks(test_it=LIGHT)
    cluster = runs.cluster([*all_verdicts(), *(saying(f"gpu{number}", "pass") for number in range(100, 150))])
    full = runs.folder / "full"
    full.mkdir()
    path, copy = full / OF_DISK[option], runs.folder / "copy"
    others = "" if option == "--report" else "--no-report"
    run = f"$PYTEST --cluster {cluster} {option}={path} {redact} {others}"
    keep = f"status=$?; cp -r {full} {copy}; exit $status"
    fill = f"head -c 4096 /dev/zero >{full}/history.other" if option == "--bundle" else "true"  # it is small
    script = f"mount -t tmpfs -o size=4k none {full}; {fill}; {run}; {keep}"
    ran = in_shell(runs, f"exec unshare --mount sh -c {shlex.quote(script)}")
    output = ran.stdout + ran.stderr
    assert ran.returncode == 2, output
    assert "Traceback" not in output
    assert "INTERNALERROR" not in output
    assert "the word is bad; expected pass" in output
    assert "INTERRUPTED" not in output  # everything was evaluated
    assert "No space left on device" in output or "disk" in output
    for kept in copy.rglob("*.*"):
        if not kept.name.startswith("history"):  # SQLite's own
            assert kept.suffix == ".json" or kept.name == "results.jsonl.part", f"half of it is kept: {kept}"
            assert kept.read_bytes().endswith(b"}\n")


@NEEDS_ROOT
def test_a_full_disk_leaves_no_half_of_a_manifest(tmp_path: Path) -> None:
    full, copy = tmp_path / "full", tmp_path / "copy"
    full.mkdir()
    manifest = Path(sys.executable).with_name("clusterproof")
    write = f"{manifest} manifest --from demo --nodes gpu001 --out {full}/golden.toml"
    script = f"mount -t tmpfs -o size=4k none {full}; echo before >{full}/other; {write}; status=$?"
    line = f"exec unshare --mount sh -c {shlex.quote(f'{script}; cp -r {full} {copy}; exit $status')}"
    ran = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, "No space left on device; expected a file" in ran.stderr) == (4, True), ran.stderr
    assert {path.name: path.read_text() for path in copy.iterdir()} == {"other": "before\n"}


@pytest.mark.parametrize("workers", ["", "-n2"], ids=["alone", "two workers"])
def test_a_reader_of_only_the_first_line_costs_no_report(runs: Runs, workers: str) -> None:
    runs.checks(test_it=LIGHT)
    cluster = runs.cluster(all_verdicts())
    line = f"$PYTEST --cluster {cluster} --report=kept --results {runs.results_file} {workers} | head -n 1"
    ran = in_shell(runs, f"{line}; exit ${{PIPESTATUS[0]}}")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.count("\n") == 1
    assert runs.verdicts == VERDICTS
    assert (runs.folder / "kept" / "report.html").exists()


# Reports are being written while `stalled` exists and `go` does not.
SLOW_REPORTS = """
    import time
    from pathlib import Path

    import pytest

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(session):
        Path("writing").touch()
        while not Path("go").exists():
            time.sleep(0.01)
"""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM], ids=lambda stop: stop.name)
def test_a_signal_while_reports_are_written_lets_them_be_written(runs: Runs, stop: signal.Signals, times: int) -> None:
    """Once after everything was evaluated, and a second time in a run that was already stopped."""
    reached = runs.folder / "reached"
    stall = STALL.format(reached=str(reached))
    stalling = LIGHT.replace("say(node", f'{stall} if node.name == "gpu002" else say(node')
    runs.checks(conftest=SLOW_REPORTS, test_it=stalling if times == 2 else LIGHT)
    cluster = runs.cluster([saying("gpu001", "bad"), saying("gpu002", "pass")])
    process = runs.started("--cluster", cluster, "--results", str(runs.results_file), "--report", "kept")
    try:
        if times == 2:
            wait_for(reached)
            process.send_signal(stop)
        wait_for(runs.folder / "writing")
        process.send_signal(stop)
        (runs.folder / "go").touch()
        output, _ = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == (2 if times == 2 else 1), output
    assert "Traceback" not in output
    assert runs.verdicts["gpu001"] is Verdict.FAIL
    assert (runs.folder / "kept" / "report.html").exists()
    assert "the word is bad; expected pass" in output


@pytest.mark.parametrize(
    ("option", "words"),
    [("--results", "expected a place that may be written"), ("--html", "expected a file that may be written")],
)
def test_a_file_that_cannot_be_begun_is_a_wrong_command_line(
    runs: Runs, tmp_path: Path, option: str, words: str
) -> None:
    runs.checks(test_it=LIGHT)
    (tmp_path / "file").touch()
    run = runs.run("--cluster", runs.cluster(all_verdicts()), f"{option}={tmp_path}/file/report")
    assert run.ret == 4
    run.stderr.fnmatch_lines([f"ERROR: {option}*{words}"])


WORD_OF_NODE = {f"gpu{number:03d}": "bad" if number in (1, 6) else "pass" for number in range(1, 9)}
CHECKS = ("host.word", "gpu.word_of_gpu")  # the first runs on all nodes, then the second
CHOSEN = [
    Result(check, node, Verdict.PASS if word == "pass" else Verdict.FAIL)
    for check in CHECKS
    for node, word in WORD_OF_NODE.items()
]
FORMS = {"terminal", "report.html", "summary.md", "summary.txt", "junit.xml", "metrics.prom", "results.jsonl"}
FORMS |= {"pytest.xml", "history"}


def cut(runs: Runs, how: Cut, *more: str, checks: str = LIGHT) -> Ran:
    runs.checks(test_1=checks, test_2=DEVICES)
    cluster = runs.cluster(saying(node, word) for node, word in WORD_OF_NODE.items())
    return cut_run(["--cluster", cluster, *more], how, CHOSEN, runs.folder / "cut", runs.folder)


@pytest.mark.parametrize(
    ("how", "checks", "more", "code", "why"),
    [
        (Cut("SIGINT", 11), LIGHT, (), 2, "SIGINT ended the run"),
        (Cut("SIGTERM", 11, is_large=True), LIGHT, (), 2, "SIGTERM ended the run"),
        (Cut("SIGHUP", 11), USUAL, (), 2, "SIGHUP ended the run"),
        (Cut("SIGTERM", 11), LIGHT, ("-n2",), 2, "SIGTERM ended the run"),
        (Cut(MAX_FAIL, 3), LIGHT, (), 1, "-x or --maxfail ended the run"),
        (Cut(MAX_FAIL, 3, is_large=True), LIGHT, (), 1, "-x or --maxfail ended the run"),
        (Cut(MAX_FAIL, 1), USUAL, (), 1, "-x or --maxfail ended the run"),
        (Cut(MAX_FAIL, 1), LIGHT, ("-n2",), 1, "-x or --maxfail ended the run"),
        (Cut(WORKER, 2), LIGHT, (), 2, "its worker process was lost"),
        (Cut(WORKER, 2), USUAL, ("--max-worker-restart=0",), 2, "its worker process was lost"),
    ],
    ids=lambda value: f"{value.by}, large" if isinstance(value, Cut) and value.is_large else getattr(value, "by", ""),
)
def test_what_was_not_evaluated_leaves_no_node_fit_in_any_form(
    runs: Runs, how: Cut, checks: str, more: tuple[str, ...], code: int, why: str
) -> None:
    ran = cut(runs, how, *more, checks=checks)
    assert ran.code == code, ran.output
    assert ran.called_fit == 0, ran.fit
    assert ran.says_so == dict.fromkeys(FORMS, True), ran.output
    assert set(ran.fit.values()) == {ran.proven}, ran.fit
    assert f"not evaluated: {why}" in ran.output
    assert 0 < len(ran.ended) < len(CHOSEN)


def test_after_so_many_results_so_many_checks_of_so_many_nodes_have_ended(runs: Runs) -> None:
    ran = cut(runs, Cut("SIGINT", 11))
    line = "INTERRUPTED: 11 of 16 checks ended, all of them on 3 of 8 nodes"
    assert (len(ran.ended), ran.proven) == (11, 2)  # gpu001 fails
    for name in ("summary.txt", "summary.md", "report.html"):
        assert line in " ".join((ran.folder / name).read_text(encoding="utf-8").replace("*", "").split()), name
    assert (ran.folder / "summary.txt").read_text(encoding="utf-8").startswith(line)


def test_a_full_disk_under_the_reports_leaves_no_form_that_is_not_whole(runs: Runs) -> None:
    ran = cut(runs, Cut(FULL_DISK, 11))
    assert ran.code == 2, ran.output
    assert "File too large" in ran.output
    assert ran.called_fit == 0, ran.fit
    assert ran.fit["terminal"] == 6  # everything was evaluated, and the report says so
    assert not (ran.folder / "results.jsonl").exists()
    assert (ran.folder / "results.jsonl.part").read_bytes().endswith(b"}\n")
    assert "report: " not in ran.output
