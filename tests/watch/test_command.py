"""`clusterproof watch`: what it refuses, how it ends, its output and its exit codes."""

from __future__ import annotations

import fcntl
import os
import platform
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.kinds import CONNECTIONS
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.training_run.sample_columns import SUFFIX
from clusterproof.plugins.watch import Change, ChangeKind, Key, RuleResult, options, view
from clusterproof.plugins.watch.view import LineView, ScreenView, beginning, change_line, headline, summary, worst
from tests.builders.wheel import ROOT
from tests.watch.days import NODE, Day

pytestmark = pytest.mark.long

TIMEOUT_S = 600.0
MAIN = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cluster", "replay:x"], "'x/cluster.json': No such file or directory"),
        (["--cluster", "demo"], "demo is reached by replay: a recording does not change; expected local, nodes"),
        (["--cluster", "local", "--every", "0.1"], "--every is 0.1; expected from 1 to 3600 s"),
        (["--cluster", "local", "--every", "soon"], "--every is 'soon'; expected a time span such as 90s, 30m or 24h"),
        (["--cluster", "local", "--for", "1y"], "--for is '1y'; expected a time span"),
        (
            ["--cluster", "local", "--fanout", "0"],
            "--fanout is 0, --connect-timeout 15; expected 1 or more, and 0.1 to",
        ),
        (["--cluster", "local", "--connect-timeout", "inf"], "--connect-timeout inf; expected 1 or more, and 0.1 to"),
        (["--cluster", "local", "--host-root", "rel"], "--host-root is 'rel'; expected a folder that begins with /"),
        (["--cluster", "local", "--policy", "nowhere.toml"], "nowhere.toml"),
        (["--cluster", "local", "--nodes", "other"], "--nodes: other is not in"),
        (
            ["--cluster", "local", "--expect", "gpus=8", "--expect", "gpus=4"],
            "--expect 'gpus=8,gpus=4' gives gpus twice",
        ),
        (["--cluster", "ssh:n[1-3]", "--exclude", "n[1-2]", "--exclude", "n3"], "--exclude"),
        (["--cluster", "local", "--for", "1s", "--record", "/dev/null/x"], "--record /dev/null/x: Not a directory"),
    ],
)
def test_what_cannot_be_watched_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", *words]) == 4
    error = capsys.readouterr().err
    assert error.startswith("clusterproof watch: ")
    assert said in error
    assert error.count("\n") == 1


def test_an_empty_word_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="4"):
        main(["watch", "local", ""])
    said = "clusterproof watch: unrecognized arguments: ''; clusterproof watch --help lists what there is\n"
    assert capsys.readouterr().err == said


def test_a_file_of_options_may_have_blank_lines_and_comments(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "watch.args"
    file.write_text("# who is told\nlocal\n\n  --every=soon \r\n", encoding="utf-8")
    assert main(["watch", f"@{file}"]) == 4
    assert capsys.readouterr().err.startswith("clusterproof watch: --every is 'soon'; expected")


def test_systems_manager_is_refused_with_its_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert all(bool(kind.sessions) is not bool(kind.why_no_sessions) for kind in CONNECTIONS.values())
    assert "stream nothing" in CONNECTIONS["ssm"].why_no_sessions


def without_nohup() -> None:
    """These tests may run under it, which a watch respects."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def in_its_terminal() -> None:
    """A process whose terminal is its standard input."""
    without_nohup()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_with_a_summary_and_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    record = tmp_path / "kept"
    command = [sys.executable, "-c", MAIN, "watch", "--cluster", "local", "--every", "1", "--record", str(record)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=without_nohup
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not list(record.glob(f"*{SUFFIX}")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    children = _below(process.pid)
    process.send_signal(number)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert "samples: 1 node, " in out
    assert process.returncode == (
        1 if "FAIL  " in out else 10 if "INCOMPLETE " in out or "not be evaluated" in out else 0
    )
    assert children
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert Path(record / "cluster.json").is_file()
    assert [path for path in (record, *record.rglob("*")) if path.stat().st_mode & 0o077] == []


def test_a_terminal_that_closes_ends_it_in_good_order(tmp_path: Path) -> None:
    leader, terminal = os.openpty()
    metrics, errors = tmp_path / "watch.prom", tmp_path / "errors"
    command = [sys.executable, "-c", MAIN, "watch", "local", "--every", "1", "--textfile", str(metrics)]
    with errors.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=terminal,
            stdout=terminal,
            stderr=file,
            start_new_session=True,
            preexec_fn=in_its_terminal,
        )
    os.close(terminal)
    deadline, shown = time.monotonic() + TIMEOUT_S, b""
    while b"all asked once" not in shown:
        assert time.monotonic() < deadline
        shown += os.read(leader, 1 << 16)
    os.close(leader)
    assert process.wait(TIMEOUT_S) in (0, 1, 10), errors.read_text()
    assert 'clusterproof_watch_up{cluster="local"} 0.0' in metrics.read_text()


def test_a_span_ends_it_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--cluster", "local", "--every", "1", "--for", "1s"]) in (0, 1, 10)
    assert "samples: 1 node, " in capsys.readouterr().out


def test_the_nodes_that_the_inventory_leaves_out_are_said_at_the_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "not validated: n9 (IDLE+DRAIN: fan)"
    monkeypatch.setattr(options, "resolve", lambda *_: replace(resolve("local"), notes=(note,)))
    main(["watch", "local", "--every", "1", "--for", "1s"])
    assert capsys.readouterr().out.splitlines()[1][9:] == f"the inventory: {note}"


def test_a_node_of_which_nothing_came_at_all_is_said_at_the_end_and_proves_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    options = ["--every", "3600", "--for", "1s", "--connect-timeout", "5"]
    assert main(["watch", "ssh:nosuchhost.invalid", *options]) == 10
    output = capsys.readouterr().out
    assert "all asked once: 1 node, 0 with a fail, 1 not reached (nosuchhost.invalid)" in output
    assert "nothing is known of 1 node: nosuchhost.invalid" in output


def test_a_line_says_what_where_and_by_which_rule(capsys: pytest.CaptureFixture[str]) -> None:
    key = Key("gpu003", "GPU 1", "gpu.row_remap")
    opened = Change(ChangeKind.OPENED, key, Verdict.FAIL, "remapping failed\x1b[2J; expected none", 1.0)
    assert change_line(opened) == "FAIL        gpu003 GPU 1: remapping failed\\x1b[2J; expected none [gpu.row_remap]"
    closed = Change(ChangeKind.CLOSED, key, Verdict.FAIL, "remapping failed", 1.0)
    assert change_line(closed) == "over        gpu003 GPU 1: remapping failed [gpu.row_remap]"
    flapping = Change(ChangeKind.FLAPPING, key, Verdict.FAIL, "remapping failed", 1.0)
    assert "(flapping: no more of it is said while it does)" in change_line(flapping)
    LineView(Day().watch, sys.stdout).show([opened])
    assert capsys.readouterr().out[8:] == f" {change_line(opened)}\n"
    long = "; also ".join(f"{'nvme' * 30}{at}n1 has failed" for at in range(4))
    worse = change_line(Change(ChangeKind.WORSE, key, Verdict.FAIL, long, 1.0))
    assert worse.endswith("3n1 has failed (worse) [gpu.row_remap]")
    endless = change_line(Change(ChangeKind.WORSE, key, Verdict.FAIL, "x" * 9_000, 1.0))
    assert endless.endswith(" … (9000 characters) (worse) [gpu.row_remap]")


def test_a_log_says_at_once_what_is_watched_and_what_the_first_answers_were(capsys: pytest.CaptureFixture[str]) -> None:
    main(["watch", "local", "--every", "1", "--for", "1s"])
    first, *lines = [line[9:] for line in capsys.readouterr().out.splitlines()]
    host = platform.node().partition(".")[0]
    assert first == f"watching 1 node ({host}) by local: a sample each second, for 1 s once all have been asked"
    assert any(line.startswith("all asked once: 1 node, ") for line in lines)


@pytest.mark.parametrize(
    ("every_s", "for_s", "job", "words"),
    [
        (10.0, None, "", "a sample each 10 s, until Ctrl-C or SIGTERM"),
        (2.5, 86400.0, "", "a sample each 2.5 s, for 24 h once all have been asked"),
        (1.0, 90.0, "", "a sample each second, for 90 s once all have been asked"),
        (10.0, None, "1234", "a sample each 10 s, until job 1234 ends"),
        (
            10.0,
            1800.0,
            "ml/llama",
            "a sample each 10 s, until job ml/llama ends, for 30 min at most once all have been asked",
        ),
    ],
)
def test_the_first_line_says_how_often_and_until_when(
    every_s: float, for_s: float | None, job: str, words: str
) -> None:
    cluster = Cluster("prod", "ssh", (Target("gpu001"), Target("gpu002")))
    assert beginning(cluster, every_s, for_s, job) == f"watching 2 nodes (gpu[001-002]) by ssh: {words}"


def test_a_log_in_which_nothing_happens_says_now_and_then_that_it_lives(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = LineView(Day().watch, sys.stdout)
    lines.show([])
    assert not capsys.readouterr().out
    monkeypatch.setattr(view, "QUIET_S", 0.0)
    lines.show([])
    assert capsys.readouterr().out[9:] == "still watching: 1 node, 0 with a fail; 0 samples\n"


def test_the_screen_has_the_worst_nodes_and_the_last_changes() -> None:
    day = Day()
    day.log("NVRM: Xid (PCI:0000:53:00): 79, pid='<unknown>', GPU has fallen off the bus.")
    day.silence(60)
    assert [(node, verdict) for node, verdict, _ in worst(day.watch)] == [(NODE, Verdict.FAIL)]
    assert "(and 1 more)" in next(line for _, _, line in worst(day.watch))
    assert headline(day.watch) == "1 node, 1 with a fail, 1 silent (gpu001)"
    assert next(iter(summary(day.watch, 60.0))).endswith("; said: 1 fail, 1 incomplete")
    screen = ScreenView(day.watch, "day")
    screen.show(day.said)
    from rich.console import Console

    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(screen._picture())
    text = console.export_text()
    assert "day: 1 node, 1 with a fail, 1 silent (gpu001)" in text
    assert "Xid 79 (GPU has fallen off the bus)" in text


def test_nodes_for_which_the_screen_has_no_room_are_counted() -> None:
    day = Day()
    for number in range(30):
        found = {("", "gpu.no_xid"): RuleResult(Verdict.CONCERN, "Xid 13")}
        day.watch.states.events(f"gpu{number:03d}", frozenset(), found, 0.0)
    from rich.console import Console

    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(ScreenView(day.watch, "day")._picture())
    assert "… and 20 more nodes" in console.export_text()


def _below(pid: int) -> list[int]:
    """All descendants of a process."""
    pids: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            pids += [child, *_below(child)]
    return pids
