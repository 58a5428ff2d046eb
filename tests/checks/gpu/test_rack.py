"""Checks of the trays of an NVLink rack on evidence that no fault of the testbed produces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.evaluated import expect
from tests.builders.recordings import boot, node
from tests.checks.gpu.racks import P6E, RACK_1, RACK_2, evaluated, rack, tray

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS


@pytest.mark.long
@pytest.mark.parametrize("check", ["rack_trays", "rack_uniform", "imex_domain", "imex_nodes"])
def test_a_whole_rack_is_well(check: str) -> None:
    own, *others = rack()
    assert evaluated(check, own, *others).verdict is PASS


@pytest.mark.parametrize(
    ("trays", "due", "verdict", "message"),
    [
        (18, 18, PASS, ""),
        (17, 18, CONCERN, "has 17 trays here (tray[00-16]); expected 18"),  # one of them is in repair
        (18, 9, FAIL, "has 18 trays here (tray[00-17]); expected 9"),
        (17, None, PASS, ""),  # a job, or a part of the cluster
        (9, None, PASS, ""),
        (19, None, CONCERN, "has 19 trays here (tray[00-18]); expected at most 18"),
    ],
)
def test_a_domain_has_as_many_trays_as_expected(trays: int, due: int | None, verdict: Verdict, message: str) -> None:
    own, *others = rack(trays=trays)
    expectation = {} if due is None else {"trays": due}
    expect(evaluated("rack_trays", own, *others, expect=expectation), verdict, message)


def test_trays_that_a_run_leaves_out_are_not_missed() -> None:
    result = evaluated("rack_trays", tray(0), expect={"trays": 18}, is_part=True)
    expect(result, INCOMPLETE, "has 1 tray here (tray00); expected 18, but this run does not cover")
    assert evaluated("rack_trays", *rack(trays=18), expect={"trays": 9}, is_part=True).verdict is FAIL


MAY_BE_OF_IT = "has 17 trays here (tray[00-16]), and the rack of 1 node is unknown; expected 18"
UNREAD = {"error": "UNKNOWN"}


@pytest.mark.parametrize(
    "lost",
    [
        node("tray17", boot=boot(), nvml=Collected(Status.TIMED_OUT)),
        tray(17, fabric={"error": "UNKNOWN"}),
        tray(17, fabric={"error": "GPU_IS_LOST"}),
    ],
)
def test_a_tray_of_which_nothing_is_known_may_be_of_any_domain(lost: NodeEvidence) -> None:
    own, *others = rack(trays=17)
    expect(evaluated("rack_trays", own, *others, lost, expect={"trays": 18}), INCOMPLETE, MAY_BE_OF_IT)
    own, *others = rack()
    assert evaluated("rack_trays", own, *others, replace(lost, node="lost"), expect={"trays": 18}).verdict is PASS


IN_PROGRESS = {  # as nvidia-smi -q prints it
    "state": 2,
    **{name: {"error": "NOT_SUPPORTED", "text": "N/A"} for name in ("status", "clique", "cluster_uuid")},
    "health_mask": 0,
    "health_summary": 0,
}


@pytest.mark.long
@pytest.mark.parametrize("fabric", [IN_PROGRESS, {"error": "UNKNOWN"}, {"state": 3, "cluster_uuid": UNREAD}])
def test_a_gpu_whose_place_is_unknown_leaves_the_others_of_its_tray_in_their_rack(fabric: dict[str, Any]) -> None:
    own, *others = rack()
    nvml: Any = own.collectors["nvml"]
    *gpus, last = nvml.value["gpus"]
    nvml = replace(nvml, value={**nvml.value, "gpus": [*gpus, {**last, "fabric": fabric}]})
    own = replace(own, collectors={**own.collectors, "nvml": nvml})
    for check in ("rack_trays", "rack_uniform", "imex_nodes"):
        assert evaluated(check, own, *others, expect={"trays": 18}).verdict is PASS
        assert evaluated(check, others[0], own, *others[1:], expect={"trays": 18}).verdict is PASS


def test_a_tray_is_in_the_cluster_of_its_only_gpu_that_is_in_one() -> None:
    own, *others = rack()
    nvml: Any = own.collectors["nvml"]
    nowhere = {"state": 2, "status": 0, "health_mask": 0, "health_summary": 0, "clique": 0, "cluster_uuid": "0" * 32}
    gpus = [{**gpu, "fabric": nowhere} for gpu in nvml.value["gpus"][:3]]
    own = replace(
        own, collectors={**own.collectors, "nvml": replace(nvml, value={"gpus": [*gpus, nvml.value["gpus"][3]]})}
    )
    assert evaluated("rack_trays", own, *others, expect={"trays": 18}).verdict is PASS
    assert evaluated("rack_trays", others[0], own, *others[1:], expect={"trays": 18}).verdict is PASS


def test_a_tray_whose_gpus_have_not_registered_yet_is_missing_in_its_rack() -> None:
    own, *others = rack()
    absent = tray(17, fabric=IN_PROGRESS)
    result = evaluated("rack_trays", own, *others[:-1], absent, expect={"trays": 18})
    expect(result, CONCERN, "has 17 trays here (tray[00-16]); expected 18")
    expect(evaluated("rack_trays", absent, own, *others[:-1]), NA, "no GPU here is known to be in a cluster")


@pytest.mark.long
def test_a_rack_that_is_not_whole_where_most_are() -> None:
    own, *others = [*rack(RACK_1, 0, 17), *rack(RACK_2, 20), *rack("3" * 32, 40), *rack("4" * 32, 60)]
    expect(evaluated("rack_trays", own, *others), CONCERN, "has 17 trays here (tray[00-16]); expected 18, as in 3 of 4")
    assert evaluated("rack_trays", others[-1], *others[:-1], own).verdict is PASS
    lost = node("lost", boot=boot(), nvml=Collected(Status.TIMED_OUT))
    expect(
        evaluated("rack_trays", own, *others, lost),
        INCOMPLETE,
        "and the rack of 1 node is unknown; expected 18, as in 3 of 4 domains here",
    )


def test_a_tray_is_compared_with_those_of_its_own_rack() -> None:
    own = tray(0, vbios="96.00")
    others = [*rack(RACK_1, 1, 3), *(tray(number, RACK_2, vbios="96.00") for number in range(20, 28))]
    result = evaluated("rack_uniform", own, *others)
    expect(result, CONCERN, f"VBIOS in cluster {RACK_1} 96.00; expected 97.00 as on 3 of 4 nodes")


def test_a_tray_with_fewer_active_links_than_its_rack() -> None:
    own = tray(0, nvlinks=[True] * 17 + [False])
    expect(evaluated("rack_uniform", own, *rack(first=1)), CONCERN, "68; expected 72 as on 18 of 19 nodes")


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes", "rack_trays", "rack_uniform"])
def test_nothing_is_missed_on_trays_whose_pods_bring_imex(check: str) -> None:
    trays = [tray(number, service=None, imex=Collected(Status.ABSENT)) for number in range(18)]
    assert evaluated(check, *trays).verdict is (PASS if check.startswith("rack") else NA)


@pytest.mark.parametrize("check", ["imex_domain", "imex_nodes", "rack_trays", "rack_uniform"])
def test_what_shares_no_memory_over_a_rack_is_no_tray_whatever_its_cluster(check: str) -> None:
    own, *others = [tray(number, name="NVIDIA H100 80GB HBM3") for number in range(3)]
    expect(evaluated(check, own, *others), NA, "no GPU here shares its memory over a rack's NVLink")


def in_two_groups(check: str, *trays: NodeEvidence, first: int = 9, **target: Any) -> list[Result]:
    """A check's result on each tray; the first trays are in one group, the others in another."""
    targets = [
        Target(evidence.node, instance_type=P6E, group="a" if number < first else "b", **target)
        for number, evidence in enumerate(trays)
    ]
    made = nodes(Cluster("rack", "local", tuple(targets)), {evidence.node: evidence for evidence in trays})
    return [evaluate(node_checks()[f"gpu.{check}"], node) for node in made.values()]


@pytest.mark.long
@pytest.mark.parametrize("check", ["rack_trays", "rack_uniform", "imex_domain", "imex_nodes", "fabric_uniform"])
def test_a_rack_is_whole_however_the_inventory_groups_its_trays(check: str) -> None:
    for first in (1, 9):
        assert {result.verdict for result in in_two_groups(check, *rack(), first=first, expect={"trays": 18})} == {PASS}


def test_a_tray_of_another_rack_is_named_whatever_its_group() -> None:
    result, *_ = in_two_groups(
        "imex_nodes", *(tray(number, RACK_2 if number in (9, 10) else RACK_1) for number in range(18))
    )
    expect(
        result,
        CONCERN,
        f"tray09, tray10 in nodes_config.cfg are not in clique 7 of cluster {RACK_1}, which this tray is in",
    )


def test_firmware_that_differs_between_the_groups_of_a_rack_is_named() -> None:
    trays = (tray(number, vbios="97.00" if number < 9 else "96.00") for number in range(18))
    for result in in_two_groups("rack_uniform", *trays):
        expect(result, CONCERN, "VBIOS in cluster 11111111111111111111111111111111 differs from node to node")


def test_the_only_tray_of_a_rack_in_its_group_is_not_alone_in_its_rack() -> None:
    trays = [*rack(RACK_1, 0, 17), tray(17), *rack(RACK_2, 20, 4)]
    assert {result.verdict for result in in_two_groups("fabric_uniform", *trays, first=17)} == {PASS}


@pytest.mark.long
def test_an_address_of_two_racks_is_that_of_the_own() -> None:
    own, *others = rack(trays=18)
    twins = [replace(tray(number, RACK_2), node=f"twin{number:02}") for number in range(18)]
    assert evaluated("imex_nodes", own, *others, *twins).verdict is PASS


def test_what_is_no_tray_and_did_not_answer_is_not_missed_in_a_rack() -> None:
    h100 = [node(f"gpu{number:03}", boot=boot(), nvml=Collected(Status.TIMED_OUT)) for number in range(4)]
    trays = rack(trays=17)
    targets = [Target(evidence.node, instance_type=P6E, expect={"trays": 18}) for evidence in trays]
    targets += [Target(evidence.node, instance_type="p5.48xlarge") for evidence in h100]
    made = nodes(Cluster("mixed", "local", tuple(targets)), {evidence.node: evidence for evidence in (*trays, *h100)})
    expect(evaluate(node_checks()["gpu.rack_trays"], made["tray00"]), CONCERN, "has 17 trays here")


def in_groups(*groups: tuple[str, str, list[NodeEvidence]]) -> Result:
    """The first tray's result on its rack, with each node's group and instance type."""
    targets = [
        Target(evidence.node, group=group, instance_type=kind, expect={"trays": 18})
        for group, kind, members in groups
        for evidence in members
    ]
    every = {evidence.node: evidence for _, _, members in groups for evidence in members}
    return evaluate(node_checks()["gpu.rack_trays"], nodes(Cluster("c", "local", tuple(targets)), every)["tray00"])


@pytest.mark.long
def test_an_unreached_node_of_unknown_type_may_be_a_tray_of_the_racks_that_its_group_is_of() -> None:
    lost = [NodeEvidence("lost", unreached=Unreached.TIMED_OUT)]
    expect(in_groups(("rack", P6E, rack(trays=17)), ("rack", "", lost)), INCOMPLETE, MAY_BE_OF_IT)
    expect(in_groups(("rack", P6E, rack(trays=17)), ("login", "", lost)), CONCERN, "has 17 trays here")
    expect(in_groups(("rack", "", rack(trays=17)), ("login", "", lost)), CONCERN, "has 17 trays here")
    expect(in_groups(("rack", P6E, rack(trays=17)), ("other half", P6E, lost)), INCOMPLETE, MAY_BE_OF_IT)
