"""A node with several reasons: the one that decides stands first, and a cut list says how many more there are."""

from __future__ import annotations

from pathlib import Path

from clusterproof.plugins.accept import Failure, OtherResult, OwnResult
from clusterproof.plugins.accept.page import page
from clusterproof.plugins.accept.report import MAX_LINES, report, text
from clusterproof.plugins.accept.report import MAX_OTHERS as IN_REPORT
from clusterproof.plugins.accept.return_to_service import MAX_OTHERS, other_findings
from clusterproof.plugins.accept.verdicts import MAX_REASONS, NodeOutcome, NodeVerdict, of_nodes
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.accept.returned import result
from tests.accept.simulated import Nodes, acceptance

LIMITS = Failure("inventory", "host.memlock", "64 KiB; expected more", "fix configuration", "runs/1")
LOST = Failure("inventory", "gpu.gpu_answers", "GPU 3: lost; expected an answer", "replace", "runs/1")


def outcome_of(folder: Path, *failures: Failure, concerns: int = 0) -> NodeOutcome:
    """The outcome of a node with these failures, and as many concerns."""
    made = acceptance(folder, Nodes())
    made.state.failures["n1"] += failures
    for number in range(concerns):
        concern = Result(f"host.check_{number}", "n1", Verdict.CONCERN, message="swap; expected none")
        made.state.results["n1"]["inventory", concern.check].append(OwnResult(concern, "runs/1", None))
    return of_nodes(made.state)[0]


def test_the_failure_of_hardware_that_rejects_a_node_is_its_first_reason(tmp_path: Path) -> None:
    of_node = outcome_of(tmp_path, *[LIMITS] * (MAX_REASONS + 1), LOST)
    assert of_node.said is NodeVerdict.REJECTED
    assert of_node.reasons[0] == "gpu.gpu_answers: GPU 3: lost; expected an answer (runs/1)"
    assert of_node.reasons[-1] == "2 more"


def test_a_screen_shows_the_failure_that_rejects_a_node(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes())
    made.state.failures["n1"] += [LIMITS, LOST]
    assert "rejected    n1: gpu.gpu_answers: GPU 3: lost" in text(report(made.state, [], "X", ""))


def test_findings_of_pairs_that_are_left_out_of_the_report_are_counted(tmp_path: Path) -> None:
    made = acceptance(tmp_path, Nodes())
    for verdict, count in ((Verdict.FAIL, IN_REPORT + 5), (Verdict.CONCERN, 3)):
        found = (Result("network.pairwise_busbw", f"n1~x{at}", verdict, subject="pair") for at in range(count))
        made.state.of_others += [OtherResult("pairs", frozenset(("n1",)), "runs/2", result) for result in found]
    made_report = report(made.state, [], "X", "")
    lines = text(made_report).splitlines()
    assert f"{'':<12}{IN_REPORT + 5 - MAX_LINES} more of pairs or the cluster, all but 5 in the report" in lines
    assert "concern     3 more, all but 3 in the report" in lines
    assert "and 8 more: results.jsonl in the folders of the runs has them" in page(made_report)


def test_concerns_that_are_left_out_are_counted(tmp_path: Path) -> None:
    assert outcome_of(tmp_path, LOST, concerns=MAX_REASONS + 3).concerns[-1] == "3 more"


def test_a_failure_of_a_node_beside_comes_before_concerns_and_is_not_cut() -> None:
    concerns = [result(f"host.check_{number}", Verdict.CONCERN, "n2") for number in range(MAX_OTHERS)]
    said = other_findings([[*concerns, result("gpu.no_xid", Verdict.FAIL, "n2")]], ["n1"])
    assert said[0] == "n2: gpu.no_xid: fail: 2; expected 0"
    assert said[-1] == "1 more"
