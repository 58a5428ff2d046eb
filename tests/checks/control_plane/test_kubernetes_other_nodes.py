"""The Kubernetes checks on nodes unlike the healthy cluster's p5, one at a time beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.nodes import nodes
from tests.builders.members import of_each, worst
from tests.checks.control_plane.kubernetes_cluster import FSX, JUST_NOW, NAMES, Words, condition, healthy
from tests.checks.control_plane.kubernetes_fault import give, label, set_condition, taint, without_driver

FAIL, CONCERN, INCOMPLETE, NOT_APPLICABLE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
OTHER = 1  # the number of the node that is changed
TRN1 = "trn1.32xlarge"


def result_of(
    check: str,
    change: Callable[[Words], object],
    instance_type: str = "p5.48xlarge",
    expect: Mapping[str, int] = {},
    group: str = "workers",
) -> Result:
    """A check's result on a node of this type and group."""
    reports = healthy()
    reports.of_nodes[NAMES[OTHER]]["imds"]["identity"]["instance_type"] = instance_type
    reports.nodes[OTHER]["instance_type"] = instance_type
    change(reports)
    facts = reports.facts()
    targets = [
        replace(target, instance_type=instance_type, group=group, expect=expect, efa_attached=None)
        if target.name == NAMES[OTHER]
        else target
        for target in facts.cluster.targets
    ]
    cluster = replace(facts.cluster, targets=tuple(targets))
    evidence = {name: node.evidence for name, node in facts.nodes.items()}
    cluster_facts = ClusterFacts(cluster, facts.evidence, nodes(cluster, evidence))
    return of_each(all_checks()[f"control_plane.{check}"], cluster_facts)[NAMES[OTHER]]


def neuron(name: str, count: int) -> Callable[[Words], object]:
    """A node whose plugin offers this many Neuron devices, and no GPU."""

    def change(reports: Words) -> None:
        for devices in (reports.nodes[OTHER]["capacity"], reports.nodes[OTHER]["allocatable"]):
            del devices["gpu"]
            devices.update({name: count, "efa": 8})

    return change


@pytest.mark.parametrize("name", ["neuron", "neurondevice"])
def test_neuron_devices_are_counted_by_either_of_their_names(name: str) -> None:
    assert result_of("k8s_gpu_allocatable", neuron(name, 16), TRN1).verdict is Verdict.PASS
    lost = result_of("k8s_gpu_allocatable", neuron(name, 15), TRN1)
    assert (lost.verdict, lost.message) == (FAIL, "15 Neuron devices allocatable; expected 16")


def test_neuron_devices_that_a_driver_of_claims_offers_count() -> None:
    def change(reports: Words) -> None:
        neuron("neuron", 0)(reports)
        pool = {"driver": "neuron.aws.com", "node": NAMES[OTHER], "pool": NAMES[OTHER], "generation": 1}
        reports.kubernetes["k8s_resource_slices"] = {"slices": [{**pool, "devices": 16, "gpus": None}]}

    assert result_of("k8s_gpu_allocatable", change, TRN1).verdict is Verdict.PASS


@pytest.mark.parametrize(("given", "verdict"), [(8, Verdict.PASS), (7, FAIL)])
def test_gpus_of_amd_are_counted_by_their_own_name(given: int, verdict: Verdict) -> None:
    def change(reports: Words) -> None:
        give(reports, OTHER, {"gpu": 0, "gpu_amd": 8}, {"gpu": 0, "gpu_amd": given})

    result = result_of("k8s_gpu_allocatable", change, "m7i.large", {"gpus": 8})
    assert result.verdict is verdict
    assert result.message == ("" if given == 8 else "7 of 8 amd.com/gpu allocatable; expected every device allocatable")


def of_no_accelerators(reports: Words) -> None:
    """A node that should have no accelerators."""
    give(reports, OTHER, {"gpu": 0, "efa": 0})
    reports.nodes[OTHER]["labels"].update(gpu_product="", gpu_count="", driver="")


NOTHING = {"gpus": 0, "efa": 0}


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ("k8s_gpu_allocatable", "no accelerators are expected of it"),
        ("k8s_efa_allocatable", "no EFA is expected of it"),
        ("k8s_gpu_seen", "no GPUs are expected of it"),
    ],
)
def test_what_is_expected_of_no_node_of_its_type_is_not_applicable(check: str, message: str) -> None:
    result = result_of(check, of_no_accelerators, "m7i.large", NOTHING)
    assert (result.verdict, result.message) == (NOT_APPLICABLE, message)


def test_slices_that_may_not_be_listed_say_nothing_of_a_node_of_which_no_accelerators_are_expected() -> None:
    def change(reports: Words) -> None:
        of_no_accelerators(reports)
        reports.refused["k8s_resource_slices"] = Collected(Status.DENIED, detail="no right")

    result = result_of("k8s_gpu_allocatable", change, "m7i.large", NOTHING)
    assert (result.verdict, result.message) == (NOT_APPLICABLE, "no accelerators are expected of it")


@pytest.mark.parametrize("by_claims", [False, True])
@pytest.mark.parametrize("expect", [{}, {"gpus": 8}])
def test_gpus_of_amd_are_not_compared_with_those_that_nvml_counts(expect: Mapping[str, int], by_claims: bool) -> None:
    def change(reports: Words) -> None:
        give(reports, OTHER, {"gpu": 0, "gpu_amd": 0 if by_claims else 8})
        pool = {"driver": "gpu.amd.com", "node": NAMES[OTHER], "pool": NAMES[OTHER], "generation": 1}
        reports.kubernetes["k8s_resource_slices"] = {"slices": [{**pool, "devices": 8, "gpus": 8}] * by_claims}
        reports.of_nodes[NAMES[OTHER]]["nvml"] = Collected(Status.ABSENT, detail="no libnvidia-ml.so.1")

    result = result_of("k8s_gpu_seen", change, "m7i.large", expect)
    assert (result.verdict, result.message) == (NOT_APPLICABLE, "its GPUs are AMD's, and NVML counts NVIDIA's")


def test_efa_that_nobody_expects_is_a_fault() -> None:
    result = result_of("k8s_efa_allocatable", lambda reports: give(reports, OTHER, {"efa": 4}), "m7i.large", NOTHING)
    assert (result.verdict, result.message) == (FAIL, "4 EFA devices allocatable; expected 0")


def test_claims_of_a_driver_count_only_where_the_device_plugin_gives_no_efa() -> None:
    def change(reports: Words) -> None:
        give(reports, OTHER, {"efa": 31})
        pool = {"driver": "efa.networking.k8s.aws", "node": NAMES[OTHER], "pool": NAMES[OTHER], "generation": 1}
        reports.kubernetes["k8s_resource_slices"] = {"slices": [{**pool, "devices": 32, "gpus": None}]}

    assert (
        result_of("k8s_efa_allocatable", change, expect={"efa": 32}).message
        == "31 EFA devices allocatable; expected 32"
    )


def test_a_node_without_versions_leaves_the_comparison_incomplete() -> None:
    reports = healthy()
    reports.nodes[OTHER]["info"] = {"kubelet": "v1.34.4-eks"}
    result = worst(all_checks()["control_plane.k8s_versions_uniform"], reports.facts())
    seen, expected = result.message.split("; ")
    assert (result.verdict, seen) == (INCOMPLETE, "Kubernetes does not report all versions of gpu002")
    assert expected == "expected those of kubelet, container runtime, OS image, kernel"


def test_a_group_of_which_nobody_labels_gpus_is_not_applicable() -> None:
    def change(reports: Words) -> None:
        for number in range(len(NAMES)):
            label(reports, number, gpu_product="", gpu_count="", driver="")

    result = result_of("k8s_gpu_labels", change)
    assert (result.verdict, result.message) == (NOT_APPLICABLE, "its GPUs have no labels")


def test_a_count_without_a_product_is_compared_too() -> None:
    result = result_of("k8s_gpu_labels", lambda reports: label(reports, OTHER, gpu_product="", gpu_count="7"))
    assert (result.verdict, result.message) == (
        FAIL,
        "label nvidia.com/gpu.count is 7, NVML counts 8; expected the same",
    )


def test_a_node_without_the_kubelets_condition_is_incomplete() -> None:
    def change(reports: Words) -> None:
        node = reports.nodes[OTHER]
        node["conditions"] = [shown for shown in node["conditions"] if shown["kind"] != "Ready"]

    result = result_of("k8s_node_ready", change)
    assert (result.verdict, result.message) == (
        INCOMPLETE,
        "it has no condition Ready; expected the kubelet to report one",
    )


def test_a_condition_without_a_time_is_not_called_old() -> None:
    missing = {**condition("GPUMissing", "True", "Missing"), "heard": "", "since": ""}
    result = result_of("k8s_node_ready", lambda reports: set_condition(reports, missing, OTHER))
    assert result.verdict is CONCERN
    assert "last confirmed" not in result.message


@pytest.mark.parametrize("check", ["k8s_system_pods", "k8s_storage", "k8s_topology_labels"])
@pytest.mark.parametrize(("instance_type", "verdict"), [("p5.48xlarge", FAIL), ("g6.12xlarge", Verdict.PASS)])
def test_a_pool_of_several_instance_types_expects_of_a_node_what_those_of_its_type_have(
    check: str, instance_type: str, verdict: Verdict
) -> None:
    """As in a NodePool of Karpenter: the EFA plugin's daemon set, and EC2's topology, cover some types only."""

    def change(reports: Words) -> None:
        reports.pods.remove(reports.pod_of("aws-efa-k8s-device-plugin", NAMES[OTHER]))
        without_driver(reports, OTHER, FSX)
        reports.nodes[OTHER]["layers"] = []

    result = result_of(check, change, instance_type)
    assert result.verdict is (CONCERN if check == "k8s_topology_labels" and verdict is FAIL else verdict)


def test_a_node_is_compared_with_those_of_its_type_in_words_too() -> None:
    def change(reports: Words) -> None:
        reports.nodes[0]["instance_type"] = "g6.12xlarge"
        without_driver(reports, OTHER, FSX)

    message = result_of("k8s_storage", change).message
    assert "no CSI driver fsx.csi.aws.com, as 2 of 2 others of its instance type in its group have; exp" in message


def test_a_taint_that_a_node_starts_with_is_neither_a_fault_nor_a_pass() -> None:
    def change(reports: Words) -> None:
        reports.nodes[OTHER]["created"] = JUST_NOW
        taint(reports, OTHER, "ebs.csi.aws.com/agent-not-ready", "NoExecute")

    result = result_of("k8s_node_takes_pods", change)
    assert (result.verdict, result.message) == (
        INCOMPLETE,
        "taint ebs.csi.aws.com/agent-not-ready:NoExecute, and the node is new; expected none within 10 min",
    )


def test_no_node_of_a_capture_without_any_time_is_new() -> None:
    """As of one from which somebody has cut the conditions."""

    def change(reports: Words) -> None:
        reports.kubernetes["k8s_nodes"]["asked_at"] = 0.0
        taint(reports, OTHER, "dedicated")

    assert result_of("k8s_node_takes_pods", change).verdict is FAIL


def test_a_taint_of_the_only_node_of_a_group_is_a_concern() -> None:
    result = result_of("k8s_node_takes_pods", lambda reports: taint(reports, OTHER, "dedicated"), group="alone")
    assert result.verdict is CONCERN
    assert "no other node in its group to compare with" in result.message


@pytest.mark.parametrize(
    ("labels", "verdict", "message"),
    [
        ({"hyperpod_health": "", "hyperpod_deep_check": ""}, NOT_APPLICABLE, "this is not a HyperPod node"),
        (
            {"hyperpod_health": "Rebooted"},
            INCOMPLETE,
            "HyperPod reports it as Rebooted; expected Schedulable in node-health-status",
        ),
    ],
)
def test_what_hyperpod_says_of_a_node_is_believed_by_its_words(
    labels: Mapping[str, str], verdict: Verdict, message: str
) -> None:
    result = result_of("hyperpod_node_health", lambda kubernetes: label(kubernetes, OTHER, **labels))
    assert (result.verdict, result.message) == (verdict, message)
