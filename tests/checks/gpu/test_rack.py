"""Checks of the trays of an NVLink rack on evidence that no fault of the testbed produces."""

from __future__ import annotations

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect
from tests.builders.recordings import boot, node
from tests.checks.gpu.racks import RACK_1, RACK_2, evaluated, rack, tray

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS


@pytest.mark.parametrize("check", ["rack_trays", "rack_uniform", "imex_domain", "imex_nodes"])
def test_a_whole_rack_is_well(check: str) -> None:
    one, *others = rack()
    assert evaluated(check, one, *others).verdict is PASS


@pytest.mark.parametrize(
    ("trays", "due", "verdict", "words"),
    [
        (18, 18, PASS, ""),
        (17, 18, CONCERN, "has 17 trays here (tray[00-16]); expected 18"),  # one of them is away for repair
        (18, 9, FAIL, "has 18 trays here (tray[00-17]); expected 9"),
        (17, None, PASS, ""),  # a job, or a part of the cluster
        (9, None, PASS, ""),
        (19, None, CONCERN, "has 19 trays here (tray[00-18]); expected at most 18"),
    ],
)
def test_a_domain_has_as_many_trays_as_expected(trays: int, due: int | None, verdict: Verdict, words: str) -> None:
    one, *others = rack(trays=trays)
    expectation = {} if due is None else {"trays": due}
    expect(evaluated("rack_trays", one, *others, expect=expectation), verdict, words)


def test_trays_that_a_run_leaves_out_are_not_missed() -> None:
    found = evaluated("rack_trays", tray(0), expect={"trays": 18}, is_part=True)
    expect(found, INCOMPLETE, "has 1 trays here (tray00); expected 18, of which this run does not have all nodes")
    assert evaluated("rack_trays", *rack(trays=18), expect={"trays": 9}, is_part=True).verdict is FAIL


def test_a_tray_that_did_not_answer_may_be_of_any_domain() -> None:
    one, *others = rack(trays=17)
    lost = node("tray17", boot=boot(), nvml=Collected(Status.TIMED_OUT))
    assert evaluated("rack_trays", one, *others, lost, expect={"trays": 18}).verdict is PASS


def test_a_rack_that_is_not_whole_where_most_are() -> None:
    one, *others = [*rack(RACK_1, 0, 17), *rack(RACK_2, 20), *rack("3" * 32, 40), *rack("4" * 32, 60)]
    expect(evaluated("rack_trays", one, *others), CONCERN, "has 17 trays here (tray[00-16]); expected 18, as 3 of 4")
    assert evaluated("rack_trays", others[-1], *others[:-1], one).verdict is PASS


def test_a_tray_is_compared_with_those_of_its_own_rack() -> None:
    one = tray(0, vbios="96.00")
    others = [*rack(RACK_1, 1, 3), *(tray(number, RACK_2, vbios="96.00") for number in range(20, 28))]
    found = evaluated("rack_uniform", one, *others)
    expect(found, CONCERN, f"VBIOS in cluster {RACK_1} 96.00; expected 97.00 as on 3 of 4 nodes")


def test_a_tray_with_fewer_active_links_than_its_rack() -> None:
    one = tray(0, nvlinks=[True] * 17 + [False])
    expect(evaluated("rack_uniform", one, *rack(first=1)), CONCERN, "68; expected 72 as on 18 of 19 nodes")


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes", "rack_trays", "rack_uniform"])
def test_nothing_is_missed_on_trays_whose_pods_bring_imex(check: str) -> None:
    trays = [tray(number, service=None, imex=Collected(Status.ABSENT)) for number in range(18)]
    assert evaluated(check, *trays).verdict is (PASS if check.startswith("rack") else NA)


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes", "rack_trays", "rack_uniform"])
def test_what_shares_no_memory_over_a_rack_is_no_tray_whatever_its_cluster(check: str) -> None:
    one, *others = [tray(number, name="NVIDIA H100 80GB HBM3") for number in range(3)]
    expect(evaluated(check, one, *others), NA, "no GPU here shares its memory over a rack's NVLink")
