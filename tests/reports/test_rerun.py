"""The command that reruns what failed."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import evaluated_by_pairs
from clusterproof.reports.to_do import MAX_CHECKS, again
from tests.builders.runs import LIGHT, Runs, all_verdicts
from tests.reports.reported import result, run_of

PYTEST = ("pytest", "--cluster", "prod")
FAILED = Verdict.FAIL


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], ""),
        ([result("gpu.ecc", "gpu001")], ""),
        ([result("gpu.ecc", f"gpu00{n}", FAILED) for n in (1, 2)], "--nodes 'gpu[001-002]' -k test_ecc"),
        (
            [result("gpu.ecc", "gpu001", FAILED), result("host.word", "gpu003", FAILED)],
            "--nodes 'gpu[001,003]' -k 'test_ecc or test_word'",
        ),
        ([result("control_plane.quota", "prod", FAILED, subject="cluster")], "-k test_quota"),
        (
            [result("control_plane.quota", "prod", FAILED, subject="cluster"), result("gpu.ecc", "gpu001", FAILED)],
            "-k 'test_quota or test_ecc'",
        ),
        ([result("gpu.ecc", "a b;rm -rf /", FAILED)], "-k test_ecc"),
        ([result("gpu.ecc", name, FAILED) for name in ("gpu001", "gpu 002")], "-k test_ecc"),
        ([result(f"gpu.c{n}", "gpu001", FAILED) for n in range(MAX_CHECKS + 1)], "--nodes gpu001"),
    ],
    ids=[
        "nothing",
        "no failure",
        "folded",
        "two checks",
        "cluster",
        "of both",
        "no name",
        "no name beside one",
        "many",
    ],
)
def test_it_names_the_nodes_and_the_checks(results: list[Result], words: str) -> None:
    assert again(replace(run_of(results), command=PYTEST), FAILED) == (
        f"pytest --cluster prod {words}" if words else ""
    )


def test_a_check_evaluated_by_pairs_runs_with_the_others() -> None:
    run = replace(run_of([]), command=(*PYTEST, "-m", "perf"), evaluated_by_pairs=evaluated_by_pairs())
    straggler, hot = result("network.not_a_straggler", "gpu003", FAILED), result("gpu.gpu_gemm", "gpu003", FAILED)
    assert again(replace(run, results=[straggler]), FAILED) == "pytest --cluster prod -m perf -k test_not_a_straggler"
    assert again(replace(run, results=[hot]), FAILED) == "pytest --cluster prod -m perf --nodes gpu003 -k test_gpu_gemm"


def test_the_command_of_a_report_runs_just_that(runs: Runs) -> None:
    passing = LIGHT.replace("test_word", "test_other").replace("say(node.boot.kernel)", "assert node.boot.kernel")
    runs.checks(test_it=LIGHT, test_more=passing)
    cluster = runs.cluster(all_verdicts())
    history = f"--history={runs.folder / 'away' / 'h.sqlite'}"
    further: tuple[str, ...] = ("--expect", "gpus=8", "--fanout", "3", "--meter", "iperf3", "--fs-bandwidth", "/fsx")
    further += (
        history,
        "--srun-options=--mpi=pmix",
    )
    runs.plain("--cluster", cluster, *further, "-m", "host", "--report", "out")
    text = (runs.folder / "out/summary.txt").read_text()
    command = next(line for line in text.splitlines() if "-k" in line and "gpu002" in line).strip()
    assert "--expect gpus=8" in command
    assert "--fanout 3" in command
    assert "--meter iperf3" in command
    assert "--fs-bandwidth=/fsx" in command
    assert history in command
    assert "--srun-options=--mpi=pmix" in command
    assert "--report" not in command
    runs.run(*shlex.split(command)[1:], "--results", str(runs.results_file))
    assert [(entry.check, entry.node) for entry in runs.results] == [("host.word", "gpu002")]


def test_the_command_of_a_redacted_report_has_each_option_with_its_value(runs: Runs) -> None:
    marked = LIGHT.replace("pytest.mark.prolog", "pytest.mark.zorgville")
    known = "def pytest_configure(config): config.addinivalue_line('markers', 'zorgville: of this site')\n"
    runs.checks(test_it=marked, conftest=known)
    cluster = runs.cluster(all_verdicts())
    runs.plain("--cluster", cluster, "--redact", "-m", "host and zorgville", "--report", "out")
    text = (runs.folder / "out/summary.txt").read_text()
    command = next(line for line in text.splitlines() if line.strip().startswith("pytest "))
    *begins, nodes = shlex.split(command.partition(" -k ")[0])
    assert begins == ["pytest", "--cluster", "X", "-m", "host and name-1", "--nodes"], command
    assert nodes
    assert "zorgville" not in text
