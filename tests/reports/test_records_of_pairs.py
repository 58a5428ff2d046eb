"""What a run keeps of measurements between nodes, in the history and in a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.benchmarks.pairwise.journal import read, write
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.pairs import pair
from clusterproof.plugins.suite.reporters.bundle import ROOT as IN_BUNDLE
from clusterproof.reports.history.past import read_past
from tests.benchmarks.pairwise.pair_faults import HEALTHY, PAIR_FAULTS, PairFault, write_recording
from tests.builders.recordings import boot, node, recorded
from tests.builders.runs import ROOT, Runs
from tests.suite.reporters.bundles import unpack

CHECKS = str(ROOT / "checks" / "perf" / "test_pairwise.py")
NAMES = [f"gpu{number:03d}" for number in range(32)]
SLOW = next(fault for fault in PAIR_FAULTS if fault.name == "a node that is 20 % slower")
SLOW_NODE = "gpu003"


def evaluated(runs: Runs, recording: Path, *arguments: str) -> list[Result]:
    """The pair checks' results on a recording."""
    runs.results_file.unlink(missing_ok=True)
    ran = runs.run(CHECKS, "-m", "perf", f"--cluster=replay:{recording}", f"--results={runs.results_file}", *arguments)
    assert ran.ret in (0, 1), ran.outlines + ran.errlines
    return runs.results


def recording_of(fault: PairFault, folder: Path) -> Path:
    recorded(folder, [node(name, boot=boot(hostname=name)) for name in NAMES], name="hp", instance_type="p5.48xlarge")
    write_recording(fault, folder, NAMES)
    return folder


def test_the_history_keeps_the_busbw_of_each_node_and_lists_the_deepest_fall_first(
    runs: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.sqlite"
    for name, fault in (("well", HEALTHY), ("slow", SLOW)):
        evaluated(runs, recording_of(fault, tmp_path / name), f"--history={history}")
    past = read_past(history, "hp", 9)
    assert {node for _, node in past.measured} == set(NAMES)
    assert [run.nodes for run in past.runs] == [len(NAMES)] * 2
    name = "busbw with partners: all_reduce of 8 GiB, p5.48xlarge, 8 ranks on each node, 32 EFA devices, nccl-tests"
    grouped = {other for other, _ in past.measured} - {name}
    assert all(other.startswith("busbw in groups of") for other in grouped)
    before, now = (measured.value for _, measured in past.measured[name, SLOW_NODE])
    assert 0.78 < now / before < 0.82
    assert main(["history", "--history", str(history)]) == 0
    lines = capsys.readouterr().out.splitlines()
    first = lines[lines.index(f"{name} per node, in GB/s; usual: the median of the runs before") + 2]
    assert SLOW_NODE in first
    assert -22 < float(first.split()[0]) < -18


def asked_only(recording: Path, node: str, other: str) -> Path:
    """The recording of a run whose command line named one pair."""
    file = recording / "pairwise.jsonl"
    journal = read(file)
    two_nodes = pair(node, other)
    kept = tuple(measurement for measurement in journal.measurements if measurement.pair == two_nodes)
    assert kept
    write(file, replace(journal, plan=replace(journal.plan, asked=(two_nodes,)), measurements=kept[:1]))
    return recording


def met(recording: Path, node: str) -> str:
    """A node that was measured with this one."""
    measurements = read(recording / "pairwise.jsonl").measurements
    return next(measurement.pair.other(node) for measurement in measurements if node in measurement.pair)


def test_a_node_that_is_not_asked_is_not_evaluated_and_that_run_is_not_in_the_trends(
    runs: Runs, tmp_path: Path
) -> None:
    history = tmp_path / "history.sqlite"
    slow = recording_of(SLOW, tmp_path / "slow")
    evaluated(runs, slow, f"--history={history}")
    partner = met(slow, "gpu000")
    some = asked_only(recording_of(SLOW, tmp_path / "some"), "gpu000", partner)
    results = evaluated(runs, some, f"--history={history}", "--incomplete=ignore")
    of_others = [result for result in results if result.is_of_node and result.node not in ("gpu000", partner)]
    assert {(result.verdict, result.message) for result in of_others} == {
        (Verdict.NOT_APPLICABLE, "not asked: --pairs names pairs of other nodes")
    }
    (asked_result,) = (
        result for result in results if (result.check, result.node) == ("network.not_a_straggler", "gpu000")
    )
    assert asked_result.verdict is not Verdict.NOT_APPLICABLE
    assert {result.since_last for result in results} == {""}
    past = read_past(history, "hp", 9)
    assert len(past.runs) == 1
    again = evaluated(runs, slow, f"--history={history}")
    (of_slow,) = (result for result in again if (result.check, result.node) == ("network.not_a_straggler", SLOW_NODE))
    assert of_slow.since_last == "still"


def test_a_run_that_was_broken_off_stays_out_of_the_trends(runs: Runs, tmp_path: Path) -> None:
    history = tmp_path / "history.sqlite"
    broken = recording_of(SLOW, tmp_path / "broken")
    file = broken / "pairwise.jsonl"
    journal = read(file)
    write(file, replace(journal, measurements=journal.measurements[:3], ended=None))
    results = evaluated(runs, broken, f"--history={history}", "--incomplete=ignore")
    assert "no pair of it was measured: the run ended before its turn" in {result.message for result in results}
    assert not history.exists() or read_past(history, "hp", 9).runs == ()


def test_a_bundle_gives_the_same_verdicts_on_pairs(runs: Runs, tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.zst"
    results = evaluated(runs, recording_of(SLOW, tmp_path / "slow"), "--bundle", str(bundle))
    unpack(bundle, tmp_path / "out")
    again = evaluated(runs, tmp_path / "out" / IN_BUNDLE / "recording")
    assert {(result.check, result.node): result.verdict for result in again} == {
        (result.check, result.node): result.verdict for result in results
    }
    assert any(result.is_of_pair for result in again)
