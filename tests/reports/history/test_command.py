"""`--history` and `clusterproof history` as typed by a user, over recorded runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory.file import DEMO
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.past import read_past
from clusterproof.reports.history.store import write_run
from clusterproof.reports.history.words import Table
from tests.builders.runs import DEVICES, LIGHT, ROOT, VERDICTS, Runs, all_verdicts, saying
from tests.reports.history.kept import DAMAGED, NAMES

ARGUMENTS = ("--history=history.sqlite", "--since-last")


def over(runs: Runs, *arguments: str, **word_of_node: str) -> pytest.RunResult:
    nodes = [saying(name, word) for name, word in word_of_node.items()]
    return runs.over(nodes, *ARGUMENTS, *arguments)


def marks(runs: Runs) -> dict[str, str]:
    return {result.node: result.since_last for result in runs.results}


def test_a_run_says_what_is_new_still_there_and_gone_in_the_terminal_and_in_its_results(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    first = over(runs, gpu001="bad", gpu002="bad", gpu003="pass", gpu004="pass")
    first.stdout.fnmatch_lines(["since the last run: this is the first one in the history"])
    assert set(marks(runs).values()) == {""}
    run = over(runs, gpu001="bad", gpu002="pass", gpu003="bad", gpu004="pass")
    assert marks(runs) == {"gpu001": "still", "gpu002": "gone", "gpu003": "new", "gpu004": ""}
    run.stdout.fnmatch_lines(
        [
            "since the last run (just now, * UTC): 1 finding new on gpu003; 1 gone from gpu002; 1 still there",
            "  new   gpu003: fail: The word is wrong (host.word)",
            "  gone  gpu002: now passes: The word is wrong (host.word)",
        ]
    )


def test_a_column_that_no_table_has_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--sort", "nod"]) == 4
    error = capsys.readouterr().err
    assert (
        "clusterproof history: --sort 'nod': no table has this column (did you mean node?); expected 'change'," in error
    )
    assert error.count("\n") == 1


def test_the_command_that_shows_every_change_is_for_this_history(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.checks(**{f"test_{number}": LIGHT.replace("test_word", f"test_word_{number}") for number in range(14)})
    over(runs, gpu001="pass")
    (line,) = [line for line in over(runs, gpu001="bad").outlines if " more lines; " in line]
    assert line.startswith("  … and 2 more lines; all of them: clusterproof history ")
    capsys.readouterr()
    assert main(shlex.split(line.partition("clusterproof ")[2])) == 0
    assert {f"host.word_{number}" for number in range(14)} <= set(capsys.readouterr().out.split())


def test_every_form_of_report_says_what_changed(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    out = runs.folder / "out"
    over(runs, "--report", "out", gpu001="bad", gpu002="bad", gpu003="pass")
    first = {path.name: path.read_text() for path in out.iterdir()}
    assert {"report.html", "summary.md", "summary.txt"} <= first.keys()
    assert not [name for name, text in first.items() if "ince the last run" in text]
    over(runs, "--report", "out", gpu001="bad", gpu002="pass", gpu003="bad")
    texts = {path.name: " ".join(path.read_text().split()) for path in out.iterdir()}
    for name in ("report.html", "summary.md", "summary.txt"):
        assert "ince the last run (" in texts[name]
        assert "1 finding new on gpu003; 1 gone from gpu002; 1 still there" in texts[name]
        assert "new gpu003: fail: The word is wrong" in texts[name]
        assert "gone gpu002: now passes: The word is wrong" in texts[name]
    assert "still gpu001: fail: The word is wrong" in texts["report.html"]
    assert "since the last run: still gpu001; new gpu003" in texts["junit.xml"]
    assert "since the last run: gone gpu002" in texts["junit.xml"]
    for change in ("new", "still", "gone"):
        assert f'clusterproof_changes{{cluster="small",change="{change}"}} 1' in texts["metrics.prom"]


def test_the_exit_code_that_is_kept_is_that_of_the_run(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    ended = [int(over(runs, gpu001=word).ret) for word in ("pass", "incomplete", "bad")]
    assert ended == [0, 10, 1]
    assert [run.exit_code for run in read_past(runs.folder / "history.sqlite", "small", 9).runs] == ended


def test_a_run_in_which_another_test_failed_is_not_green(runs: Runs) -> None:
    runs.checks(test_it=LIGHT, test_other="def test_other(): assert False")
    assert over(runs, gpu001="pass").ret == 1
    assert not read_past(runs.folder / "history.sqlite", "small", 9).runs[-1].is_green


def test_with_workers_the_run_is_added_once(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    over(runs, "-n2", gpu001="bad", gpu002="pass")
    over(runs, "-n2", gpu001="pass", gpu002="pass")
    assert marks(runs) == {"gpu001": "gone", "gpu002": ""}
    assert [run.exit_code for run in read_past(runs.folder / "history.sqlite", "small", 9).runs] == [1, 0]


def test_a_run_that_is_added_keeps_of_what_its_nodes_are_made(runs: Runs) -> None:
    runs.checks(test_gpu=DEVICES)
    nodes = [saying("gpu001", "pass", "bad"), saying("gpu002", "pass")]
    runs.over(nodes, *ARGUMENTS)
    past = read_past(runs.folder / "history.sqlite", "small", 9)
    assert past.tracks["gpu.word_of_gpu", "gpu001"][0].devices == ("GPU 1",)
    (_, identity) = past.identities["gpu001"][0]
    assert [(gpu.index, gpu.serial) for gpu in identity.gpus] == [(1, "1650523020001")]  # two nodes claim the other


@pytest.mark.parametrize(NAMES, DAMAGED)
def test_a_history_that_cannot_be_used_costs_a_line_and_no_verdict(
    runs: Runs, breaks: Callable[[Path], None], words: str
) -> None:
    runs.checks(test_it=LIGHT)
    breaks(runs.folder / "history.sqlite")
    run = runs.over(all_verdicts(), *ARGUMENTS)
    assert run.ret == 1
    assert runs.verdicts == VERDICTS
    (line,) = (line for line in run.outlines if line.startswith("warning: "))
    assert words in line
    assert "INTERNALERROR" not in run.stdout.str()


@pytest.mark.parametrize(("path", "why"), [(".", "Is a directory"), ("test_it.py/history", "Not a directory")])
def test_a_place_where_no_history_can_be_is_said_before_a_node_is_asked(runs: Runs, path: str, why: str) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over([saying("gpu001", "pass")], "--since-last", f"--history={path}")
    assert run.ret == 4
    assert f"--history {path}: {why}; expected a place that may be written" in run.stderr.str()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--since-last"], "--since-last needs --history=FILE: with --no-report nothing is kept"),
        (["--since-last", "--report", "out"], "--since-last needs --history=FILE: with --report this run is not kept"),
        (["--history=x", "--redact"], "--history with --redact"),
    ],
)
def test_what_has_no_meaning_is_refused(runs: Runs, arguments: list[str], words: str) -> None:
    runs.checks(test_it=LIGHT)
    run = runs.over([saying("gpu001", "pass")], *arguments)
    assert run.ret == 4
    assert words in run.stderr.str()


def test_the_history_of_a_cluster_is_beside_its_reports(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    for _ in range(2):
        run = runs.plain("--cluster", "local", "--since-last")
    run.stdout.fnmatch_lines(["since the last run (just now, * UTC): nothing has changed; 1 finding still there"])
    assert len(read_past(runs.folder / "runs/local/history.sqlite", "local", 9).runs) == 2


@pytest.mark.parametrize("arguments", [["--no-report"], ["--redact"], ["--collect-only"], ["--report", "out"]])
def test_a_run_that_leaves_nothing_or_no_names_keeps_no_history(runs: Runs, arguments: list[str]) -> None:
    runs.checks(test_it=LIGHT)
    runs.plain("--cluster", "local", *arguments)
    assert not list(runs.folder.rglob("history.sqlite"))


def test_a_replay_is_no_news_of_its_cluster(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    cluster = runs.cluster([saying("gpu001", "pass")])
    runs.plain("--cluster", cluster)
    assert not list(runs.folder.rglob("history.sqlite"))
    run = runs.plain("--cluster", cluster, "--since-last")
    assert "--since-last needs --history=FILE: what a replay holds is of another time" in run.stderr.str()


def test_a_path_that_leads_pytest_away_from_its_configuration_is_named(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.checks(test_it=LIGHT)
    elsewhere = tmp_path / "history.sqlite"
    cluster = runs.cluster([saying("gpu001", "pass")])
    command = [sys.executable, "-m", "pytest", "-p", "clusterproof.plugins.cluster", "--cluster", cluster]
    assert [runs.pytester.run(*command, "--history", str(elsewhere)).ret for _ in range(2)] == [0, 0]
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--history {elsewhere}")
    again = runs.pytester.run(*command)
    assert again.ret == 4
    assert "write every option that names a file elsewhere with an equals sign" in again.stderr.str()
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--history={elsewhere}")
    assert runs.pytester.run(*command).ret == 0


def sick_then_replaced(folder: Path) -> list[Path]:
    """The demo cluster four times: with only its own faults; a GPU of gpu001 sick; well; sick in gpu016."""
    gpu = json.loads((DEMO / "nodes" / "gpu001.json").read_text(encoding="utf-8"))["collectors"]["nvml"]["value"][
        "gpus"
    ][4]
    made = []
    for number, sick in enumerate(("", "gpu001", "", "gpu016")):
        made.append(folder / str(number))
        shutil.copytree(DEMO, made[-1])
        if sick:
            node = made[-1] / "nodes" / f"{sick}.json"
            record = json.loads(node.read_text(encoding="utf-8"))
            at = record["collectors"]["nvml"]["value"]["gpus"][4]
            at.update(uuid=gpu["uuid"], serial=gpu["serial"], ecc_uncorrected_dram=3, ecc_uncorrected_total=3)
            node.write_text(json.dumps(record), encoding="utf-8")
        if sick == "gpu016":  # gpu001 now has another GPU in that place
            other = made[-1] / "nodes" / "gpu001.json"
            record = json.loads(other.read_text(encoding="utf-8"))
            record["collectors"]["nvml"]["value"]["gpus"][4].update(uuid="GPU-00000000-aaaa", serial="1")
            other.write_text(json.dumps(record), encoding="utf-8")
    return made


def test_the_history_of_the_demo_cluster_follows_a_gpu_from_node_to_node(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.sqlite"
    for recording in sick_then_replaced(tmp_path):
        checks = str(ROOT / "checks" / "gpu" / "test_memory.py")
        runs.run("--cluster", f"replay:{recording}", f"--history={file}", checks, "-q")
    capsys.readouterr()
    assert main(["history", "--history", str(file), "--cluster", "demo"]) == 0
    page = capsys.readouterr().out
    assert "Since the run before it" in page
    assert "demo: 4 runs since " in page
    (moved,) = (line for line in page.splitlines() if "and the fault with it" in line)
    assert "gpu[001,016]" in moved
    assert "moved from gpu001 to gpu016, and the fault with it  gpu.no_uncorrected_ecc" in moved
    new = [line.split() for line in page.splitlines() if line.startswith("  new") and "no_uncorrected_ecc" in line]
    assert [row[-1] for row in new] == ["gpu016"]


def test_the_history_is_found_beside_the_reports_and_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: Runs
) -> None:
    assert main(["history"]) == 4
    assert "no history under runs; expected --history FILE" in capsys.readouterr().err
    runs.checks(test_it=LIGHT)
    cluster = runs.cluster([saying("gpu001", "bad")])
    runs.run("--cluster", cluster, "--history=runs/small/history.sqlite")
    capsys.readouterr()
    assert main(["history"]) == 0
    assert "Found by the first run" in capsys.readouterr().out
    assert main(["history", "--cluster", "large"]) == 4
    assert main(["history", "--history", "runs/small/history.sqlite", "--cluster", "large"]) == 4
    assert "has no cluster 'large'; expected one of small" in capsys.readouterr().err
    Path("runs/small").chmod(0o777)
    assert main(["history"]) == 4
    assert "runs/small: may be written by others" in capsys.readouterr().err


def test_the_verdicts_of_the_history_are_those_of_the_results(runs: Runs) -> None:
    runs.checks(test_it=LIGHT)
    runs.over(all_verdicts(), *ARGUMENTS)
    past = read_past(runs.folder / "history.sqlite", "small", 9)
    verdicts = {node: track[-1].verdict for (_, node), track in past.tracks.items()}
    assert verdicts == {
        node: verdict for node, verdict in VERDICTS.items() if verdict not in (Verdict.PASS, Verdict.NOT_APPLICABLE)
    }


def test_a_long_nodeset_in_a_table_has_whole_ranges_and_closed_brackets() -> None:
    nodes = fold(f"gpu{number:03d}" for number in range(0, 200, 2))
    _, row = Table(("nodes", "checks"), ((nodes, "gpu.no_xid"),)).lines()
    assert re.fullmatch(r"gpu\[[0-9,]+\] and \d+ more +gpu\.no_xid", row)


def test_the_name_of_a_cluster_in_a_colleagues_file_steers_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history.sqlite"
    for number in range(13):
        write_run(file, PastRun(f"c{number}\x1b[2J", 1_772_000_000.0, 1_772_000_060.0), [])
    assert main(["history", f"--history={file}"]) == 0
    assert main(["history", f"--history={file}", "--cluster=other"]) == 4
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "of 13 clusters; --cluster NAME shows another: c11\\x1b[2J, c10" in said.out
    assert "c5\\x1b[2J, c4\\x1b[2J, and 4 more\n" in said.out
    assert "c6\\x1b[2J, c5\\x1b[2J, and 5 more\n" in said.err
