"""The laws, on small evidence for each of their rules, and on a seeded sample of the fault matrix."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.catalog.needs import needs
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Finding
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from tests.builders.cuts import Cut, Ran
from tests.builders.recordings import boot, gpu, node, nvml
from tests.faults import ALL_FAULTS, BY_NAME, FAULTS, captured
from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import Fault
from tests.laws import cut, halves, order, pairs, removal
from tests.laws.cases import Case, case_of
from tests.laws.findings import is_reported
from tests.laws.losses import Loss, Tried, together, wrong
from tests.laws.merge import Conflict, merged
from tests.laws.options import options_of
from tests.laws.order import CHANGES
from tests.laws.pieces import difference, noted, taken_away
from tests.laws.probing import evidence_of
from tests.laws.taken import taken
from tests.testbed.needs import needs_nodes

SEED = 26
LIVE, CAPTURED = 12, 6  # faults in the sample; twice as many with `--all`
HEALTHY = node("gpu001", boot=boot(), nvml=nvml(*(gpu(index, ecc_uncorrected_dram=0) for index in range(3))))


def with_errors(errors: int, index: int = 1) -> NodeEvidence:
    """The healthy node with this many uncorrected errors on one GPU."""
    gpus = [gpu(number, ecc_uncorrected_dram=errors if number == index else 0) for number in range(3)]
    return node("gpu001", boot=boot(), nvml=nvml(*gpus))


def value(evidence: NodeEvidence, *path: Any) -> Any:
    """The value at a path in a collector's value."""
    item: Any = evidence.collectors[path[0]].value
    for key in path[1:]:
        item = item[key]
    return item


def test_what_is_read_of_evidence_is_noted_also_by_those_who_ask_for_its_type() -> None:
    reads: set[tuple[str, ...]] = set()
    read = value(noted(HEALTHY, reads), "nvml", "gpus")
    assert {*map(type, read)} <= {dict}
    assert read[1]["uuid"]
    assert ("nvml", "gpus", "[]", "uuid") in reads
    assert ("nvml", "gpus", "[]", "serial") not in reads


def test_a_key_is_taken_away_wherever_the_fault_did_not_change_it() -> None:
    evidence = with_errors(14)
    changed = difference(dict(evidence.collectors), dict(HEALTHY.collectors))
    without, gone = taken_away(evidence, ("nvml", "gpus", "[]", "ecc_uncorrected_dram"), changed)
    assert [record.get("ecc_uncorrected_dram") for record in value(without, "nvml", "gpus")] == [None, 14, None]
    assert gone == [0, 0]


@pytest.mark.parametrize(("collector", "status"), [("boot", Status.NOT_ASKED), ("nvml", Status.READ)])
def test_a_collector_is_taken_away_unless_the_fault_is_in_it(collector: str, status: Status) -> None:
    evidence = with_errors(14)
    changed = difference(dict(evidence.collectors), dict(HEALTHY.collectors))
    without, _ = taken_away(evidence, (collector,), changed)
    assert without.collectors[collector].status is status


def test_two_faults_are_put_into_one_node() -> None:
    both = merged(with_errors(14, 0), with_errors(9, 2), HEALTHY)
    assert [record["ecc_uncorrected_dram"] for record in value(both, "nvml", "gpus")] == [14, 0, 9]


def test_two_faults_that_change_one_value_are_no_pair() -> None:
    with pytest.raises(Conflict):
        merged(with_errors(14), with_errors(9), HEALTHY)


def test_the_lines_of_two_faults_are_in_the_order_of_their_time() -> None:
    logs = [[[1.0, "boot"], *lines] for lines in ([[5.0, "late"]], [[3.0, "early"]], [])]
    nodes = [node("gpu001", kernel_log={"lines": lines}) for lines in logs]
    assert [line for _, line in value(merged(*nodes), "kernel_log", "lines")] == ["boot", "early", "late"]


SEEN = Finding(Verdict.FAIL, "uncorrected ECC errors: 14 in DRAM since 2026-11-24 08:51:26 UTC; expected 0", ("GPU 3",))


@pytest.mark.parametrize(
    ("after", "excused", "expected"),
    [
        (SEEN, (), True),
        (Finding(Verdict.FAIL, "uncorrected ECC errors: 14 in DRAM since 80000 s after boot", ("GPU 3",)), (), True),
        (Finding(Verdict.FAIL, "uncorrected ECC errors: 14 in DRAM", ("GPU 4",)), (), False),
        (Finding(Verdict.FAIL, "uncorrected ECC errors in DRAM", ("GPU 3",)), (), False),
        (Finding(Verdict.FAIL, "uncorrected ECC errors in DRAM", ("GPU 3",)), ("14",), True),
        (Finding(Verdict.FAIL, "14 GPUs of 3 nodes are hot", ("GPU 3",)), (), False),
        (Finding(Verdict.CONCERN, SEEN.message, SEEN.devices), (), False),
        (Finding(Verdict.INCOMPLETE, "uptime was not reported"), (), False),
    ],
)
def test_a_finding_is_said_by_its_verdict_its_device_its_values_and_most_of_its_words(
    after: Finding, excused: tuple[str, ...], expected: bool
) -> None:
    assert is_reported(SEEN, [after], frozenset(excused)) is expected


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_change_of_order_or_name_changes_the_evidence(change: Callable[[NodeEvidence], NodeEvidence]) -> None:
    log = {"lines": [[80_000.0, "NVRM: Xid"]], "truncated": False}
    evidence = NodeEvidence("gpu001", {**HEALTHY.collectors, "kernel_log": Collected(Status.READ, log)})
    assert repr(change(evidence)) != repr(evidence)


def test_half_of_a_list_is_taken_away_and_the_entry_with_the_fault_stays() -> None:
    case = Case("errors", with_errors(14), HEALTHY, ("gpu.no_uncorrected_ecc",))
    found = {halved.what: value(halved.evidence, "nvml", "gpus") for halved in halves.halves(case, case.checks[0])}
    assert [one["index"] for one in found["the first half of nvml.gpus"]] == [1, 2]
    assert [one["index"] for one in found["the second half of nvml.gpus"]] == [0, 1]
    lacking = found["the first half of nvml.gpus[].ecc_uncorrected_dram"]
    assert [one.get("ecc_uncorrected_dram") for one in lacking] == [None, 14, 0]


def test_a_finding_that_half_of_a_list_hides_is_a_loss() -> None:
    case = Case("errors", with_errors(14), HEALTHY, ("gpu.no_uncorrected_ecc",))
    assert halves.tried(case, case.checks).hidden() == []
    case.named["gpu.no_uncorrected_ecc"].append(Finding(Verdict.FAIL, "the mean of eight GPUs; expected less"))
    assert {loss.finding for loss in halves.tried(case, case.checks).hidden()} == {
        "fail the mean of eight GPUs; expected less"
    }


def test_the_law_of_removal_counts_what_rows_explain_apart_from_what_is_hidden() -> None:
    losses = [Loss("gpu.a", "lost", f"key {number}", "seen", "pass", reason) for number, reason in enumerate(("", "r"))]
    total = together([Tried(5, tuple(losses[:1])), Tried(7, tuple(losses[1:]))])
    assert (total.count, total.trials(total.hidden()), total.needed) == (12, 1, 1)


def needed(count: int) -> tuple[Loss, ...]:
    """This many removals that rows explain, each row at least once."""
    rows = [*needs()]
    return tuple(
        Loss("gpu.a", "lost", f"key {number}", "seen", "pass", rows[number % len(rows)]) for number in range(count)
    )


@pytest.mark.parametrize(
    ("tried", "is_whole", "words"),
    [
        ({"removal": Tried(15_000, needed(600))}, True, []),
        ({"removal": Tried(0)}, False, ["TOO FEW     removal: 0 were tried; expected at least 1"]),
        ({"removal": Tried(5)}, False, []),
        ({"order": Tried(5)}, True, ["TOO FEW     order: 5 were tried; expected at least 1800"]),
        ({"removal": Tried(15_000, needed(751))}, True, ["TOO MANY    removal: 751 are explained by rows"]),
    ],
)
def test_a_run_that_tries_too_little_or_explains_too_much_is_wrong(
    tried: dict[str, Tried], is_whole: bool, words: list[str]
) -> None:
    lines = list(wrong(tried, is_whole))
    assert len(lines) == len(words)
    assert all(line.startswith(start) for line, start in zip(lines, words, strict=True))


def test_a_row_that_explains_nothing_is_wrong() -> None:
    lines = list(wrong({"removal": Tried(15_000)}, is_whole=True))
    assert lines == [f"NO USE      removal: row {name!r} explains nothing" for name in needs()]


def test_a_fault_takes_away_anothers_subject_only_where_a_row_says_so() -> None:
    no_jumbo_frames = "an interface that takes no jumbo frames"
    assert taken("network.mtu", no_jumbo_frames, "an interface without a link")
    assert not taken("network.mtu", no_jumbo_frames, "a GPU that is lost")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--law", "removl"], "'removl' is no law (did you mean removal?)"),
        (["--check", "gpu.no_xit"], "'gpu.no_xit' is not a check (did you mean gpu.no_xid?)"),
        (["--fault", "an Xid of the hardwear"], "no fault's name has 'an Xid of the hardwear' (did you mean an Xid of"),
    ],
)
def test_a_word_that_chooses_nothing_is_an_error_that_names_near_ones(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options_of(arguments)
    assert words in capsys.readouterr().err


def test_only_faults_that_the_chosen_check_finds_are_probed_but_for_pairs() -> None:
    lost = ["--check", "network.ib_lost_packets"]
    names = {fault.name for fault in options_of([*lost, "--law", "removal"]).faults_needed}
    assert "a port whose packets are lost on their way" in names
    assert all("network.ib_lost_packets" in BY_NAME[name].expect for name in names)
    assert options_of(lost).faults_needed == ALL_FAULTS
    assert options_of(["--law", "cut"]).faults_needed == ()


@pytest.fixture(scope="module")
def sample(pytestconfig: pytest.Config) -> list[Case]:
    """Some cases of the fault matrix, each probed once."""
    chosen = random.Random(SEED)
    plain = [fault for fault in FAULTS if pairs.is_plain(fault)]
    live, read = (2 * LIVE, 2 * CAPTURED) if pytestconfig.getoption("--all") else (LIVE, CAPTURED)
    faults: list[Fault | CapturedFault] = [*chosen.sample(plain, live), *chosen.sample(captured.FAULTS, read)]
    with ProcessPoolExecutor(os.cpu_count()) as probers:
        evidence = evidence_of(faults, probers)
    return [case_of(fault, evidence) for fault in faults]


@needs_nodes
@pytest.mark.long
def test_no_removal_from_a_sample_of_faults_hides_one(sample: list[Case]) -> None:
    total = together(removal.tried(case, node_checks()) for case in sample)
    assert total.hidden() == []
    assert total.count > 20 * len(sample)


@needs_nodes
@pytest.mark.long
def test_no_half_of_a_list_that_is_missing_from_a_sample_of_faults_hides_one(sample: list[Case]) -> None:
    found = together(halves.tried(case, node_checks()) for case in sample)
    assert found.hidden() == []
    assert found.count > 20 * len(sample)


@needs_nodes
@pytest.mark.long
def test_no_fault_of_a_sample_hides_another(sample: list[Case]) -> None:
    live = [case for case in sample if not case.files]
    total = together(pairs.tried(case, live[at + 1 :], node_checks()) for at, case in enumerate(live))
    assert total.hidden() == []
    assert total.count > len(live) * (len(live) - 1) / 4


@needs_nodes
@pytest.mark.long
def test_order_and_names_change_no_finding_of_a_sample(sample: list[Case]) -> None:
    total = together(order.tried(case, node_checks()) for case in sample)
    assert total.hidden() == []
    assert total.count > 3 * len(sample)


@pytest.mark.long
def test_a_sample_of_cut_runs_calls_no_node_fit_that_is_not_proven() -> None:
    assert cut.tried(cut.every_cut()[:: 4 * cut.MOMENTS]) == Tried(3)


def test_a_run_that_calls_a_node_fit_or_does_not_say_that_it_was_cut_is_wrong() -> None:
    says_so = {"page": True, "metrics": False}
    ran = Ran(Cut("SIGINT", 5), 1, "", Path(), (), proven=1, fit={"page": 3}, says_so=says_so)
    assert {loss.check for loss in cut.wrong(ran)} == {"a node that is not proven", "exit code", "metrics"}
