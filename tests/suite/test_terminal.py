"""The console command's output of a run, and what `-v` adds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.result import INTERRUPTED, Finding, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.suite.terminal import Evaluating, cluster_lines, with_lesser
from tests.builders.runs import ALONE_OR_NOT

pytestmark = pytest.mark.any_user

FAIL, INCOMPLETE, CONCERN = Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN
CHECK = ["check", "demo", "-k", "gpu_answers", "--no-report"]
DIES = """
    import os
    import pytest

    @pytest.mark.host
    def test_dies(node):
        if node.name == "gpu003":
            os._exit(3)
"""
OF_PYTEST = ("test session starts", "cachedir:", "rootdir:", "plugins:", "collected ", "deselected", "==", "[100%]")


@pytest.fixture(autouse=True)
def of_one_test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore plugin autoloading, which the command turns off, after a test that calls it in this process."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.mark.long
@pytest.mark.parametrize("workers", ALONE_OR_NOT)
def test_a_run_shows_its_cluster_and_its_findings_and_nothing_of_pytest(
    capfd: pytest.CaptureFixture[str], workers: list[str]
) -> None:
    assert main([*CHECK, *workers]) == 1
    out = capfd.readouterr().out
    assert out.startswith("cluster: demo: 16 nodes (gpu[001-016]) by replay\n\nRESET OR REBOOT")
    assert not [word for word in OF_PYTEST if word in out]
    assert re.fullmatch(r"1 failed, 13 passed, 2 incomplete in \d+\.\d s", out.splitlines()[-1])


SYSCTL = "vm.overcommit_memory = 2\nkernel.pid_max = 4096\n"  # other settings are unknown


@pytest.mark.long
def test_the_last_line_counts_each_concern_that_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "gpu001"
    folder.mkdir()
    (folder / "sysctl.txt").write_text(SYSCTL, encoding="utf-8")
    arguments = ["-k", "kernel_settings or process_ids", "--no-report"]
    assert main(["check", f"capture:{tmp_path}", *arguments]) == 10
    out = capfd.readouterr().out
    assert re.fullmatch(r"2 incomplete, 2 concern in \d+\.\d s", out.splitlines()[-1])
    assert len([line for line in out.splitlines() if line.startswith("CONCERN ")]) == 2


@pytest.mark.parametrize(
    ("counts", "verdicts", "shown"),
    [
        (["1 failed", "1 concern"], [(FAIL,), (CONCERN,)], ["1 failed", "1 concern"]),
        (["1 failed", "1 concern"], [(FAIL, CONCERN), (CONCERN,)], ["1 failed", "2 concern"]),
        (["1 failed"], [(FAIL, CONCERN)], ["1 failed", "1 concern"]),
        (["1 failed"], [(FAIL, INCOMPLETE, CONCERN)], ["1 failed", "1 incomplete", "1 concern"]),
        (["1 failed", "1 incomplete"], [(FAIL, INCOMPLETE), (INCOMPLETE,)], ["1 failed", "2 incomplete"]),
        (["3 passed"], [], ["3 passed"]),
    ],
)
def test_what_stands_beside_what_is_worse_is_counted(
    counts: list[str], verdicts: list[tuple[Verdict, ...]], shown: list[str]
) -> None:
    results = [
        Result("host.swap", "gpu001", each[0], findings=tuple(Finding(verdict, "seen") for verdict in each))
        for each in verdicts
    ]
    assert with_lesser(counts, results) == shown
    unevaluated = Result("host.swap", "gpu002", INCOMPLETE, cause=INTERRUPTED)
    assert with_lesser(counts, [*results, unevaluated]) == shown


@pytest.mark.long
def test_with_v_all_of_it_is_there(capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*CHECK, "-v"]) == 1
    out = capfd.readouterr().out
    assert not [word for word in OF_PYTEST if word not in out]
    assert "test_gpu_answers[gpu001] PASSED" in out


class Terminal:
    """Keeps what was sent to a terminal."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def rewrite(self, line: str, **_: bool) -> None:
        self.sent.append(line)

    def write(self, text: str) -> None:
        self.sent.append(text)


def test_the_evaluation_of_many_nodes_is_one_line_that_is_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("clusterproof.plugins.suite.terminal.EVALUATING_S", 0.0)
    line = Evaluating(terminal, checks=256, nodes=1000)  # type: ignore[arg-type]
    for _ in range(256):
        line.count()
    line.end()
    assert terminal.sent == [*(f"evaluating 1,000 nodes: {share} %" for share in (25, 50, 75, 100)), "", "\r"]


@pytest.mark.long
def test_with_workers_the_line_goes_on_as_their_verdicts_come(tmp_path: Path) -> None:
    command = [str(Path(sys.executable).with_name("clusterproof")), "check", "demo", "-n2", "--no-report"]
    shown = tmp_path / "shown"
    subprocess.run(["script", "-qec", shlex.join(command), str(shown)], cwd=tmp_path, capture_output=True, check=False)
    shares = re.findall(r"evaluating 16 nodes: (\d+) %", shown.read_text(encoding="utf-8"))
    assert shares
    assert [*map(int, shares)] == sorted({*map(int, shares)})


def test_a_worker_that_is_lost_is_one_warning(pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]) -> None:
    checks = pytester.makepyfile(test_dies=DIES)
    assert main(["check", "demo", str(checks), "-n2", "--no-report"]) == 2
    out = capfd.readouterr().out
    assert re.search(r"^warning: worker gw\d was lost: Not properly terminated$", out, re.MULTILINE)
    assert "replacing" not in out
    assert "INCOMPLETE  gpu003: the run was interrupted (host.dies)" in out
    assert re.search(r"^15 passed, 1 interrupted in ", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("hook", "out", "err"),
    [
        ("pytest_configure", "", "clusterproof: interrupted\n"),
        ("pytest_sessionstart", "", "clusterproof: interrupted\n"),
        ("pytest_collection", "\nINTERRUPTED before any check was chosen\nno check ran in … s\n", ""),
    ],
)
def test_an_interrupt_is_said_once_and_without_code(
    hook: str, out: str, err: str, pytester: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    pytester.makepyfile(stops=f"def {hook}():\n    raise KeyboardInterrupt")
    pytester.syspathinsert()
    assert main(["check", "demo", "-p", "stops", "--no-report"]) == 2
    output = capfd.readouterr()
    assert (re.sub(r"in [0-9.]+ s$", "in … s", output.out, flags=re.MULTILINE), output.err) == (out, err)


def test_a_short_evaluation_shows_no_line() -> None:
    terminal = Terminal()
    line = Evaluating(terminal, checks=3, nodes=1)  # type: ignore[arg-type]
    line.count()
    line.end()
    assert terminal.sent == []


def test_what_an_inventory_notes_steers_no_terminal() -> None:
    cluster = Cluster("slurm:gpu", "srun", (Target("gpu001"),), notes=("not validated: gpu002 (DOWN: fan\x1b[2J)",))
    assert [*cluster_lines(cluster)][1:] == ["cluster: not validated: gpu002 (DOWN: fan\\x1b[2J)"]
