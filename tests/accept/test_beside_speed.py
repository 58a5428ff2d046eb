"""What speed checks report apart from speed counts like any check's result; only populations judge speed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterproof.plugins.accept.report import report, text
from clusterproof.plugins.accept.verdicts import NodeOutcome, NodeVerdict, of_nodes
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding, Result, grouped, with_findings
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf.facts import is_of_comparison
from tests.accept.simulated import Nodes, acceptance
from tests.builders.evaluated import result_of

FAIL, INCOMPLETE, CONCERN = Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN
WRONG = Finding(FAIL, "8 wrong values at 8589934592 bytes; expected 0", action="investigate")
CRASHED = Finding(INCOMPLETE, "all_reduce_perf ended with exit status 139 after 8 GiB; expected 0")
UNCHECKED = Finding(INCOMPLETE, "no check of 8 GiB; expected one")
FEWER = Finding(INCOMPLETE, "7 of 8 GPUs were measured; expected all of them")
PUBLISHED = Finding(CONCERN, "all-reduce of 8 GiB: 390 GB/s; expected 440 as others measured on p5.48xlarge")
SLOW = Finding(FAIL, "GPU 0: 600 TFLOP/s, 14 % below the median of 8 nodes (700); expected at most 10 % below")
SLOWER = Finding(CONCERN, "GPU 0: 650 TFLOP/s, 7 % below the best GPU of the node (700); expected at most 5 % below")
ALONE = Finding(INCOMPLETE, "GPU 0: 700 TFLOP/s; expected further GPUs or nodes to compare with")
OF_FILES = Finding(CONCERN, "/fsx: read 2 GB/s where 4 nodes have 3; expected at least 80 % of their median")
FEW_OF_FILES = Finding(
    INCOMPLETE, "/fsx: read 2 GB/s; expected further nodes to compare with, or a limit (load.fs_gb_per_s)"
)


@dataclass
class Found(Nodes):
    """Nodes of which n3 has these findings in its speed checks, in these of its runs."""

    findings: tuple[Finding, ...] = ()
    in_runs: tuple[int, ...] = (1, 2, 3, 4)

    def _result(self, stage: str, node: str) -> Result:
        well = super()._result(stage, node)
        is_found = (stage, node) == ("speed", "n3") and self.measured["n3"] in self.in_runs
        return with_findings(well, grouped(self.findings)) if is_found else well


def outcome(folder: Path, nodes: Nodes) -> tuple[NodeOutcome, str]:
    """The verdict on n3, and the whole screen."""
    made = acceptance(folder, nodes)
    made.go_on((), lambda _words: None)
    of_n3 = next(result for result in of_nodes(made.state) if result.node == "n3")
    return of_n3, text(report(made.state, made.ended, made.named, ""))


@pytest.mark.parametrize(
    ("found", "in_runs", "due", "message"),
    [
        ((WRONG,), (1, 2, 3, 4), NodeVerdict.REJECTED, "8 wrong values"),
        ((SLOW, WRONG), (1, 2, 3, 4), NodeVerdict.REJECTED, "8 wrong values"),
        ((WRONG,), (2,), NodeVerdict.OPEN, "failed in 1 of 3 runs: 8 wrong values"),
        ((CRASHED,), (1, 2, 3, 4), NodeVerdict.OPEN, "incomplete: all_reduce_perf ended with exit status 139"),
        ((CRASHED, SLOWER), (3,), NodeVerdict.OPEN, "incomplete: all_reduce_perf ended with exit status 139"),
        ((UNCHECKED, ALONE), (1, 2, 3, 4), NodeVerdict.OPEN, "incomplete: no check of 8 GiB"),
        ((FEWER,), (1, 2, 3, 4), NodeVerdict.OPEN, "incomplete: 7 of 8 GPUs were measured"),
    ],
)
def test_what_is_wrong_or_missing_besides_the_speed_counts(
    found: tuple[Finding, ...], in_runs: tuple[int, ...], due: NodeVerdict, message: str, tmp_path: Path
) -> None:
    of_n3, screen = outcome(tmp_path, Found(findings=found, in_runs=in_runs))
    assert (of_n3.said, message in " ".join(of_n3.reasons)) == (due, True), of_n3
    assert message.partition(":")[0].split()[0] in screen


BY_POLICY = Finding(FAIL, f"{SLOWER.message} (by policy: concern of gpu.gpu_gemm is fail)", action="investigate")


@pytest.mark.long
@pytest.mark.parametrize("found", [SLOW, SLOWER, ALONE, OF_FILES, FEW_OF_FILES, BY_POLICY])
def test_how_fast_it_is_beside_others_a_population_decides(found: Finding, tmp_path: Path) -> None:
    of_n3, screen = outcome(tmp_path, Found(findings=(found,)))
    assert of_n3 == NodeOutcome("n3", NodeVerdict.ACCEPTED, (), ())
    assert screen.startswith("ssh:n[1-8]: accepted: 8 accepted, 4 stages left out")


def test_a_speed_below_what_others_published_is_still_a_concern(tmp_path: Path) -> None:
    of_n3, _ = outcome(tmp_path, Found(findings=(PUBLISHED, SLOWER)))
    assert (of_n3.said, of_n3.concerns) == (NodeVerdict.ACCEPTED, (f"gpu.gpu_gemm: {PUBLISHED.message}",))


@pytest.mark.parametrize(("found", "due"), [((SLOW, PUBLISHED), 1), ((CRASHED, PUBLISHED), 1)])
def test_a_concern_of_one_run_is_said_whatever_other_runs_say(
    found: tuple[Finding, ...], due: int, tmp_path: Path
) -> None:
    of_n3, screen = outcome(tmp_path, Found(findings=found, in_runs=(2,)))
    assert of_n3.concerns == (f"gpu.gpu_gemm: in 1 of 3 runs: {PUBLISHED.message}",)
    assert f"{due} concern" in screen


@pytest.mark.long
def test_what_was_incomplete_in_a_run_is_said_of_a_node_that_other_runs_accept(tmp_path: Path) -> None:
    nodes = Found(findings=(CRASHED,), in_runs=(1,), speed=lambda node, run: 0.9 if (node, run) == ("n3", 2) else 1.0)
    of_n3, screen = outcome(tmp_path, nodes)
    times = nodes.measured["n3"]
    assert times > 3, "another run is in the place of the one that crashed"
    assert (of_n3.said, of_n3.concerns) == (
        NodeVerdict.ACCEPTED,
        (f"gpu.gpu_gemm: in 1 of {times} runs: {CRASHED.message}",),
    )
    assert "8 accepted, 1 concern" in screen


@pytest.mark.parametrize("next_to_nothing", [0.0, 5e-324, 1e-20])
def test_where_nothing_was_measured_nobody_decides_in_the_place_of_the_check(
    next_to_nothing: float, tmp_path: Path
) -> None:
    nodes = Found(findings=(ALONE,), speed=lambda node, _run: next_to_nothing if node == "n3" else 100.0)
    assert outcome(tmp_path, nodes)[0].said is NodeVerdict.OPEN


def measured(name: str, tflops: float, fs_gb_per_s: float, busbw: float) -> NodeEvidence:
    """A node whose GPU, file system and all-reduce have these speeds."""
    gemm = json.dumps({"type": "torch.bfloat16", "size": 8192, "tflops": [[tflops] * 5]})
    files = {way: {"bytes": fs_gb_per_s * 1e10, "seconds": 10.0} for way in ("write", "read")}
    row = f" 8589934592 2147483648 float sum -1 32000.0 268.00 {busbw:.2f} 0 32000.0 268.00 {busbw:.2f} 0\n"
    head = "# nThread 1 nGpus 8 minBytes 1 maxBytes 1 step: 2(factor) iters: 20 validation: 1 graph: 0\n"
    columns = "#   size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
    printed = f"{head}{columns}{row}# Out of bounds values : 0 OK\n# Avg bus bandwidth : {busbw:.2f}\n"
    loads: dict[str, object] = {
        "gpu_gemm": {"command": "python3", "exit": 0, "output": gemm},
        "fs_bandwidth": {"folder": "/fsx", **files},
        "node_busbw": {"command": "all_reduce_perf", "exit": 0, "output": printed},
    }
    return NodeEvidence(name, collectors={load: Collected(Status.READ, value) for load, value in loads.items()})


@pytest.mark.parametrize("others", [0, 4])
@pytest.mark.parametrize("check", ["gpu.gpu_gemm", "storage.fs_bandwidth", "gpu.node_busbw"])
@pytest.mark.parametrize("share", [0.7, 0.94, 1.0])
def test_what_checks_say_of_nodes_beside_each_other_is_known_for_that(check: str, share: float, others: int) -> None:
    beside = [measured(f"n{number}", 700.0, 3.0, 470.0) for number in range(others)]
    findings = result_of(
        check, measured("slow", 700.0 * share, 3.0 * share, 470.0 * share), *beside, occasion="perf"
    ).findings
    reworded = [finding.message for finding in findings if not is_of_comparison(finding.cause, "as you like")]
    assert reworded == [finding.message for finding in findings if finding.verdict is INCOMPLETE]
    assert [finding.message for finding in findings if not is_of_comparison("", finding.message)] == []
    assert bool(findings) is (not others or share < 0.9 or (share < 1 and "fs" not in check))


@dataclass
class Unsaid(Nodes):
    """Nodes whose exact arithmetic one run does not report, as with another version of the suite."""

    def _result(self, stage: str, node: str) -> Result:
        made = super()._result(stage, node)
        is_first = stage == "exact" and [name for name, _ in self.runs].count(stage) == 1
        return replace(made, check="gpu.other") if is_first else made


def test_a_check_that_a_run_says_nothing_of_is_open(tmp_path: Path) -> None:
    of_n3, screen = outcome(tmp_path, Unsaid())
    assert of_n3.reasons == ("gpu.other: 1 of 3 runs", "gpu.gpu_exact: 2 of 3 runs")
    assert screen.startswith("ssh:n[1-8]: undecided: 8 open")
