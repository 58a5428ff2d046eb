"""The Kubernetes checks: each can fail, and all are silent on a healthy cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.redaction.redact import Redaction
from tests.builders.members import of_each, worst
from tests.checks.control_plane.kubernetes_cluster import (
    FSX,
    HALF_AN_HOUR_AGO,
    JUST_NOW,
    NAMES,
    Words,
    claim,
    condition,
    healthy,
    held,
    of_pod,
    pod,
    waiting,
)
from tests.checks.control_plane.kubernetes_fault import (
    KubernetesFault,
    give,
    kubelet,
    label,
    process,
    set_condition,
    taint,
    unbound,
    without_driver,
)
from tests.checks.control_plane.kubernetes_verdicts import KUBERNETES_FAULTS, OF_KUBERNETES, findings_of, verdicts

OF_NO_NODE = ("k8s_queues", "k8s_compute_domains")


def test_a_healthy_cluster_passes() -> None:
    assert findings_of(healthy()) == {}


@pytest.mark.parametrize("fault", KUBERNETES_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_its_verdicts_and_no_other(fault: KubernetesFault) -> None:
    results = verdicts(fault.put())
    changed = {name: result.verdict for name, result in results.items() if result.verdict is not Verdict.PASS}
    assert changed == fault.expect, {name: results[name].message for name in changed}
    assert fault.words in results[next(iter(fault.expect))].message


def test_every_check_is_proven() -> None:
    bad = (Verdict.FAIL, Verdict.CONCERN)
    proven = {name for fault in KUBERNETES_FAULTS for name, verdict in fault.expect.items() if verdict in bad}
    assert proven == set(OF_KUBERNETES)


def test_a_finding_is_of_its_node_and_the_others_pass() -> None:
    reports = healthy()
    reports.nodes[1]["cordoned"] = True
    results = of_each(OF_KUBERNETES["k8s_node_takes_pods"], reports.facts())
    assert {name: result.verdict for name, result in results.items()} == {
        **dict.fromkeys(NAMES, Verdict.PASS),
        NAMES[1]: Verdict.FAIL,
    }
    result = results[NAMES[1]]
    assert result.is_of_node
    assert (result.node, result.instance_type) == (NAMES[1], "p5.48xlarge")
    assert result.message == "it is cordoned; expected a node that takes pods"


@pytest.mark.parametrize(
    ("collector", "lost"),
    [
        ("k8s_nodes", set(OF_KUBERNETES) - {"k8s_pending_gpu_pods", *OF_NO_NODE, "k8s_volume_claims"}),
        (
            "k8s_pods",
            {
                *("k8s_system_pods", "k8s_pending_gpu_pods", "k8s_gpu_pods", "k8s_pod_shm"),
                *("k8s_storage", "k8s_volume_claims"),
            },
        ),
        ("k8s_storage", {"k8s_storage", "k8s_volume_claims"}),
        ("k8s_resource_slices", set()),  # read only if no device plugin offers the devices
        *((check, {check}) for check in OF_NO_NODE),
    ],
)
def test_what_may_not_be_listed_costs_the_checks_that_need_it(collector: str, lost: set[str]) -> None:
    reports = healthy()
    reports.refused[collector] = Collected(Status.DENIED, detail='User "x" cannot list resource "…"')
    results = verdicts(reports)
    assert {name for name, result in results.items() if result.verdict is not Verdict.PASS} == lost
    for name in lost:
        assert results[name].verdict is Verdict.INCOMPLETE
        assert 'User "x" cannot list resource' in results[name].message


def test_a_process_outside_of_any_pod_is_a_fault_where_pods_may_not_be_listed() -> None:
    reports = healthy()
    process(reports, held("/user.slice/user-1000.slice/session-4.scope"))
    reports.refused["k8s_pods"] = Collected(Status.DENIED, detail='User "x" cannot list resource "pods"')
    result = of_each(OF_KUBERNETES["k8s_gpu_pods"], reports.facts())[NAMES[1]]
    assert [shown.verdict for shown in result.by_verdict] == [Verdict.FAIL, Verdict.INCOMPLETE]
    assert result.message.startswith("GPU 3: process 4711 (python) belongs to no pod; expected only pods to use GPUs")


def test_a_driver_that_only_one_node_lacks_is_a_concern_where_pods_may_not_be_listed() -> None:
    reports = healthy()
    without_driver(reports, 2, FSX)
    reports.refused["k8s_pods"] = Collected(Status.DENIED, detail='User "x" cannot list resource "pods"')
    result = of_each(OF_KUBERNETES["k8s_storage"], reports.facts())[NAMES[2]]
    assert [shown.verdict for shown in result.by_verdict] == [Verdict.INCOMPLETE, Verdict.CONCERN]
    assert "no CSI driver fsx.csi.aws.com, as 3 of 3 others of its group have; expected" in result.message


@pytest.mark.parametrize(
    "change",
    [
        lambda reports: [taint(reports, number, "dedicated") for number in range(4)],
        lambda reports: set_condition(reports, condition("EtcdIsVoter", "True", "MemberNotLearner")),
        lambda reports: taint(reports, 1, "soft", "PreferNoSchedule"),
        lambda reports: (
            taint(reports, 1, "node.kubernetes.io/not-ready"),  # not removed yet
            set_condition(reports, condition("Ready", "True", since=JUST_NOW), 1),
        ),
        lambda reports: taint(reports, 1, "aws.amazon.com/neuron"),
        lambda reports: reports.pods.append(pod("young", accelerators=8, created=JUST_NOW)),
        lambda reports: reports.pods.append(pod("gated", accelerators=8, gates=1)),
        lambda reports: reports.pods.append(pod("small", NAMES[2], most_gpus=1, gpus=1, accelerators=1)),
        lambda reports: reports.pods.append(pod("old", NAMES[2], deleted=JUST_NOW, accelerators=1)),
        lambda reports: reports.pods.append(pod("own", NAMES[2], owner="DaemonSet/my-thing", ready=False)),
        lambda reports: reports.pod_of("kube-proxy", NAMES[1]).update(ready=False, created=JUST_NOW),
        lambda reports: (give(reports, 1, {"gpu": 32}), label(reports, 1, gpu_replicas="4")),
        lambda reports: (
            give(reports, 1, {"gpu": 0, "mig": {"1g.10gb": 56}}),
            label(reports, 1, mig_strategy="mixed", gpu_product="NVIDIA H100 80GB HBM3 MIG 1g.10gb", gpu_count="56"),
        ),
        lambda reports: process(reports, held(of_pod(10)), node=NAMES[0]),  # a daemon set's
        lambda reports: unbound(reports, claim("late", "Pending", **{"class": "gp3"}), accelerators=0),
        lambda reports: unbound(reports, claim("late", "Pending"), created=JUST_NOW),
        lambda reports: unbound(reports, claim("late", "Pending", created=JUST_NOW), accelerators=0),
        lambda reports: unbound(reports, claim("late", "Pending"), deleted=JUST_NOW),
        lambda reports: unbound(reports, claim("late", "Pending"), gates=1),
        lambda reports: reports.storage["claims"].append(claim("of-nobody", "Pending")),
        lambda reports: reports.storage["nodes"][2]["drivers"].append("one.of.its.own"),
        lambda reports: [kubelet(reports, number, configured={}, in_force={}) for number in range(4)],
    ],
)
def test_what_is_meant_to_be_so_is_no_finding(change: Callable[[Words], object]) -> None:
    reports = healthy()
    change(reports)
    allowed = {"k8s_gpu_seen": Verdict.NOT_APPLICABLE}  # one of four nodes has partitioned GPUs: the others pass
    assert {name: verdict for name, verdict in findings_of(reports).items() if allowed.get(name) is not verdict} == {}


@pytest.mark.parametrize(
    "renew",
    [
        lambda reports: reports.nodes[2].update(created=JUST_NOW),
        lambda reports: reports.pods.append(pod("fsx-csi-node-3", NAMES[2], role="csi", created=JUST_NOW)),
    ],
    ids=["the node", "the driver's pod"],
)
def test_a_driver_that_a_new_node_has_not_registered_yet_is_neither_a_fault_nor_a_pass(
    renew: Callable[[Words], object],
) -> None:
    reports = healthy()
    without_driver(reports, 2, FSX)
    renew(reports)
    assert findings_of(reports) == {"k8s_storage": Verdict.INCOMPLETE}


def test_parts_of_a_gpu_that_are_not_given_are_a_fault() -> None:
    reports = healthy()
    give(reports, 1, {"gpu": 0, "mig": {"1g.10gb": 56}}, {"gpu": 0, "mig": {"1g.10gb": 49}})
    assert "49 of 56 nvidia.com/mig-1g.10gb allocatable" in verdicts(reports)["k8s_gpu_allocatable"].message


def test_a_claim_of_many_pods_is_reported_once_and_of_many_claims_the_oldest_pods() -> None:
    reports = healthy()
    reports.pods.extend(
        pod(f"follower-{n}", NAMES[1], created=HALF_AN_HOUR_AGO, volume_claims=["shared"]) for n in (1, 2)
    )
    reports.pods.append(pod("leader", NAMES[2], volume_claims=["shared"]))
    reports.pods.extend(
        pod(f"other-{n:02}", NAMES[3], created=HALF_AN_HOUR_AGO, volume_claims=[f"c{n}"]) for n in range(10)
    )
    message = verdicts(reports)["k8s_volume_claims"].message
    assert message.startswith(
        "train/shared of train/leader, 23 days old: there is no such claim, train/c0 of train/other-00"
    )
    assert "train/c9" not in message
    assert message.endswith(", and 1 more; expected claims that have a volume within 10 min")


def test_kubernetes_report_on_an_unreached_node_is_evaluated_and_the_rest_incomplete() -> None:
    reports = healthy()
    reports.of_nodes[NAMES[2]] = {}
    compared = {"k8s_gpu_seen", "k8s_gpu_labels", "k8s_hugepages", "k8s_gpu_pods", "k8s_kubelet_policy"}
    assert findings_of(reports) == dict.fromkeys(compared, Verdict.INCOMPLETE)
    assert all(verdicts(reports)[name].is_of_unreachable for name in compared)
    give(reports, 2, {"gpu": 0})
    reports.pods.append(pod("old", NAMES[2], deleted=HALF_AN_HOUR_AGO, accelerators=8))
    results = verdicts(reports)
    assert results["k8s_gpu_allocatable"].verdict is results["k8s_gpu_pods"].verdict is Verdict.FAIL


def test_a_node_without_the_condition_ready_is_not_called_not_ready() -> None:
    reports = healthy()
    reports.nodes[2].update(conditions=[])  # as in the table of kubectl get nodes, which shows only who is not ready
    message = verdicts(reports)["k8s_system_pods"].message
    assert "it is not known to be Ready, so the state of its pods is unknown" in message


def test_a_node_that_kubernetes_does_not_list_any_more_is_incomplete() -> None:
    reports = healthy()
    reports.kubernetes["k8s_nodes"]["nodes"].pop()
    result = verdicts(reports)["k8s_node_ready"]
    assert (result.verdict, result.node) == (Verdict.INCOMPLETE, "gpu004")
    assert "gpu004: Kubernetes lists no such node any more" in result.message


def test_a_node_is_found_by_its_instance_where_the_inventory_names_its_host() -> None:
    reports = healthy()
    reports.nodes[0].update(name="hyperpod-i-0123456789abcde01")
    facts = reports.facts()
    target = Target("ip-10-1-2-3", "sagemaker-cluster:abc_workers-i-0123456789abcde01", group="workers")
    cluster = Cluster("ml", "hyperpod", (target,), dict(facts.cluster.settings))
    seen = ClusterFacts(cluster, facts.evidence, nodes(cluster, {target.name: NodeEvidence(target.name)}))
    assert worst(OF_KUBERNETES["k8s_node_ready"], seen).verdict is Verdict.PASS


def test_a_cluster_without_kubernetes_is_not_evaluated() -> None:
    cluster = Cluster("c", "ssh", (Target("a"),))
    facts = ClusterFacts(cluster, NodeEvidence("c"), nodes(cluster, {"a": NodeEvidence("a")}))
    for check in OF_KUBERNETES.values():
        result = worst(check, facts)
        assert result.verdict is Verdict.NOT_APPLICABLE
        assert result.message.removeprefix("a: ") == "c is not a Kubernetes cluster"


@pytest.mark.parametrize("name", sorted(COLLECTORS))
@pytest.mark.parametrize("data", [None, [], {}, {"nodes": [None], "pods": "x"}, {"asked_at": "now"}])
def test_evidence_in_another_form_is_no_pass_and_no_fault(name: str, data: object) -> None:
    reports = healthy()
    reports.kubernetes[name] = data
    if name == "k8s_resource_slices":
        give(reports, 1, {"gpu": 0})
    seen = findings_of(reports)
    assert Verdict.INCOMPLETE in seen.values()
    assert {"k8s_gpu_seen"} >= {name for name, verdict in seen.items() if verdict is Verdict.FAIL}


def test_an_init_container_that_waits_is_named() -> None:
    reports = healthy()
    container = waiting("CreateContainerError", "no such runtime", "toolkit-validation")
    reports.pod_of("kube-proxy", NAMES[1]).update(ready=False, unready=[container], created=JUST_NOW)
    assert "toolkit-validation: CreateContainerError (no such runtime)" in verdicts(reports)["k8s_system_pods"].message


@pytest.mark.parametrize("fault", [None, *KUBERNETES_FAULTS], ids=lambda fault: fault.name if fault else "healthy")
def test_without_the_names_of_things_the_verdicts_are_the_same(fault: KubernetesFault | None) -> None:
    reports = fault.put() if fault else healthy()
    facts = reports.facts()
    redaction, shown = Redaction(facts.cluster), {}
    with redaction.rewriting(lambda evidence: shown.update({evidence.node: evidence})) as learn:
        for node in facts.nodes.values():
            learn(node.evidence)
    evidence = redaction.of_control_plane(facts.evidence)
    redacted = ClusterFacts(redaction.cluster, evidence, nodes(redaction.cluster, shown))
    seen = {name: worst(check, redacted) for name, check in OF_KUBERNETES.items()}
    expected = {name: result.verdict for name, result in verdicts(reports).items()}
    assert {name: result.verdict for name, result in seen.items()} == expected
    assert not any(name in result.message for result in seen.values() for name in (*NAMES, "worker-0", "us-west-2b-"))
