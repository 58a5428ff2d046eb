"""Kubernetes nodes: whether each is Ready and schedulable, and has the versions of its group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from clusterproof.plugins.catalog.kubernetes import health_of_hyperpod, is_expected_taint
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.field import known
from clusterproof.plugins.evidence.group import Values, differences
from clusterproof.plugins.evidence.group import describe as compared
from clusterproof.plugins.evidence.kubernetes.facts import DEFAULTS, KubernetesNode, Taint, duration_text
from clusterproof.plugins.evidence.kubernetes.nodes import MemberNode
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.control_plane, mark.preflight]

OF_KUBELET = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
KEEPS_AWAY = ("NoSchedule", "NoExecute")
OF_CONDITIONS = "node.kubernetes.io/"  # taints that stand for conditions and for a cordon, but also others
OF_CORDON = "unschedulable"
CONDITION_OF = {  # by what stands in a taint behind OF_CONDITIONS
    "not-ready": "Ready",
    "unreachable": "Ready",
    "memory-pressure": "MemoryPressure",
    "disk-pressure": "DiskPressure",
    "pid-pressure": "PIDPressure",
    "network-unavailable": "NetworkUnavailable",
}
OF_HYPERPOD = ("hyperpod_health", "hyperpod_deep_check", "hyperpod_fault", "hyperpod_reason")
MAX_VERSIONS = 4  # of a program in a group in words
VERSIONS = {"kubelet": "kubelet", "runtime": "container runtime", "os": "OS image", "kernel": "kernel"}


@mark.hyperpod_node_debugger("F")
@evidence("kubectl describe node NODE")
def test_k8s_node_ready(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """Kubernetes node conditions.

    A node that is not Ready, or is short of memory, disk or process IDs, gets no new pods and may lose those it has.
    Conditions written by other agents are a concern: some of them outlive the fault.

    Remedy (restore service): Read the kubelet's log on the node (journalctl -u kubelet), free what it is short of, or
    restart the kubelet; fix what another agent's condition reports.
    """
    listed = k8s_node.listed
    ready = listed.condition("Ready")
    with part:
        if ready is None:
            incomplete("it has no condition Ready; expected the kubelet to report one")
        fail_if(ready.status != "True", f"{listed.describe(ready)}; expected a node that is Ready")
        silent_min = cluster.threshold("kubernetes.heartbeat_minutes")
        silent_s = listed.age_s(ready.heard) if ready.heard else 0.0
        ago = f"{duration_text(silent_s)} ago"
        message = f"Ready was last confirmed {ago}; expected an update at least every {silent_min:g} min"
        concern_if(silent_s > silent_min * 60, message)
    short = [
        listed.describe(condition)
        for condition in listed.conditions
        if condition.kind in OF_KUBELET and condition.status == "True"
    ]
    fail_if(short, f"{', '.join(short)}; expected enough memory, disk and process IDs")
    others = list(_of_others(listed, cluster.threshold("kubernetes.stale_condition_minutes") * 60))
    concern_if(others, f"{', '.join(others)}; expected no condition that reports a fault")


def _of_others(listed: KubernetesNode, stale_s: float) -> Iterator[str]:
    """The faults that other agents report for the node, with the time if it is long ago."""
    for condition in listed.conditions:
        if condition.kind not in ("Ready", *OF_KUBELET) and condition.status == condition.bad:
            age_s = listed.age_s(condition.heard or condition.since) if condition.heard or condition.since else 0.0
            stale = f", last confirmed {duration_text(age_s)} ago" if age_s > stale_s else ""
            yield f"{listed.describe(condition)}{stale}"


@mark.hyperpod_node_debugger("F")
@evidence("kubectl get node NODE -o jsonpath='{.spec.unschedulable}{.spec.taints}'")
def test_k8s_node_takes_pods(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """Kubernetes node accepting pods.

    A node that is cordoned, or has a taint that the others of its group do not have, gets no pods: a job that needs all
    nodes waits. A taint set by clusterproof's own gate is a concern, since its condition says which check failed.

    Remedy (restore service): Fix what it was cordoned or tainted for, then kubectl uncordon NODE, or kubectl taint node
    NODE KEY-.
    """
    listed = k8s_node.listed
    fail_if(listed.is_cordoned, "it is cordoned; expected a node that takes pods")
    settle_s = cluster.threshold("kubernetes.settle_minutes") * 60
    lone = ", ".join(taint.description for taint in listed.taints if _lacks_condition(taint, listed, settle_s))
    concern_if(lone, f"taint {lone}, and no condition that says why; expected a node that takes pods")
    odd = [taint for taint in listed.taints if _keeps_away(taint) and not _is_shared(taint, k8s_node, cluster)]
    foreign = ", ".join(taint.description for taint in odd if not taint.is_ours)
    is_alone = foreign and not k8s_node.others
    concern_if(is_alone, f"taint {foreign}, with no other node in its group to compare with; expected none")
    is_new = bool(listed.created) and abs(listed.age_s(listed.created)) < settle_s  # a capture may have no time of now
    fail_if(foreign and not (is_alone or is_new), f"taint {foreign}; expected only those that most of its group have")
    ours = ", ".join(taint.description for taint in odd if taint.is_ours)
    concern_if(ours, f"taint {ours}; expected a node that takes pods")
    if foreign and is_new and not is_alone:
        incomplete(f"taint {foreign}, and the node is new; expected none within {settle_s / 60:g} min")


def _keeps_away(taint: Taint) -> bool:
    is_told_otherwise = _stands_for(taint) in (OF_CORDON, *CONDITION_OF)
    return taint.effect in KEEPS_AWAY and not is_told_otherwise and not is_expected_taint(taint.key)


def _stands_for(taint: Taint) -> str:
    """What Kubernetes itself tells by a taint; empty for another's."""
    return taint.key.removeprefix(OF_CONDITIONS) if taint.key.startswith(OF_CONDITIONS) else ""


def _lacks_condition(taint: Taint, listed: KubernetesNode, settle_s: float) -> bool:
    """Whether the taint stands for a condition that is not reported, or that has long been well."""
    kind = CONDITION_OF.get(_stands_for(taint))
    if kind is None or taint.effect not in KEEPS_AWAY:
        return False
    condition = listed.condition(kind)
    if condition is None:
        return True
    is_well = condition.status == ("True" if kind == "Ready" else "False")
    since = [time for time in (condition.since, listed.created) if time]  # a node is created with such taints
    return is_well and bool(condition.since) and all(listed.age_s(time) > settle_s for time in since)


def _is_shared(taint: Taint, node: MemberNode, cluster: ClusterFacts) -> bool:
    """Whether most others of the group have it too, as in a group that is reserved for some jobs."""
    having = cluster.taints_of_groups[node.listed.group][taint.key, taint.effect] - 1
    return 2 * having > len(node.others)


@mark.hyperpod_node_debugger("F")
@evidence(
    "kubectl get nodes -L sagemaker.amazonaws.com/node-health-status,sagemaker.amazonaws.com/deep-health-check-status"
)
def test_hyperpod_node_health(k8s_node: MemberNode) -> None:
    """HyperPod node health.

    HyperPod's agents record in labels whether a node is healthy, what is wrong with it, and how its deep health checks
    ended. A node that is not Schedulable gets no pods until it is rebooted or replaced.

    Remedy (restore service): Let automatic recovery reboot or replace the node; if it is off, use
    BatchRebootClusterNodes or BatchReplaceClusterNodes.
    """
    listed = k8s_node.listed
    if not listed.is_of_hyperpod:
        not_applicable("this is not a HyperPod node")
    health, deep, *faults = (known(partial(listed.label, name), "") for name in OF_HYPERPOD)
    fault = ": ".join(filter(None, faults))
    why = f" ({fault})" if fault else ""
    state = health_of_hyperpod(health)
    fail_if(state and not state.takes_pods, f"HyperPod reports it as {health}{why}; expected Schedulable")
    fail_if(deep == "Failed", f"its deep health checks failed{why}; expected them to pass")
    concern_if(deep == "InProgress", "its deep health checks are still running; expected a node that takes pods")
    if state is None:
        health = listed.label("hyperpod_health")  # raises why it is unread
        incomplete(f"HyperPod reports it as {health or 'nothing'}{why}; expected Schedulable in node-health-status")
    is_unfit = not state.takes_pods or deep == "Failed"
    concern_if(fault and not is_unfit, f"HyperPod reports it as {health} and names a fault: {fault}; expected none")


@mark.hyperpod_version_checker
@evidence("kubectl get nodes -o wide")
def test_k8s_versions_uniform(cluster: ClusterFacts) -> None:
    """Versions in a group of Kubernetes nodes.

    A job is as slow, or as broken, as the one node that is different.

    Remedy (fix configuration): Update the node group to one version, or replace the nodes that are behind.
    """
    listed: dict[tuple[str, str], Counter[str]] = {}
    silent = []
    for member in cluster.kubernetes_members.values():
        info = member.listed.info if member.known else {}
        if not all(info.get(key) for key in VERSIONS):
            silent.append(member.label)
        for key, program in VERSIONS.items():
            if info.get(key):
                listed.setdefault((member.node.target.group, program), Counter())[str(info[key])] += 1
    mixed = [
        f"{group or 'the nodes'}: {program} "
        f"{' and '.join(f'{version} on {count}' for version, count in counts.most_common(MAX_VERSIONS))}"
        f"{f' and {len(counts) - MAX_VERSIONS} more' if len(counts) > MAX_VERSIONS else ''}"
        for (group, program), counts in listed.items()
        if len(counts) > 1
    ]
    concern_if(mixed, f"{', '.join(mixed)}; expected one version of each in a group")
    if silent:
        every = ", ".join(VERSIONS.values())
        incomplete(f"Kubernetes does not report all versions of {fold(silent)}; expected those of {every}")


@mark.hyperpod_node_debugger("N")
@evidence("on the node: grep policyName /var/lib/kubelet/*_manager_state; ps -o args= -C kubelet")
def test_k8s_kubelet_policy(k8s_node: MemberNode) -> None:
    """CPU, memory and topology manager of the kubelet.

    If one node gives a container CPUs and memory close to its GPUs and another does not, a job runs at the pace of the
    slower node. The policy in the kubelet's state files takes precedence over its current configuration.

    Remedy (fix configuration): Give the kubelet the same configuration as the rest of its group. To change a policy,
    drain the node, stop the kubelet, delete /var/lib/kubelet/cpu_manager_state (or memory_manager_state), and start it.
    """
    kubelet = k8s_node.node.kubelet
    apart = [f"{key} is {kept} in force and {setting} in its files" for key, kept, setting in kubelet.overtaken]
    concern_if(apart, f"{', '.join(apart)}; expected the configured policy in force")
    deviations = differences(k8s_node.node, "kubelet", _policies)
    concern_if(deviations, compared(deviations))
    for key in DEFAULTS:
        with part:
            kubelet.policy(key)  # what it did not report was not compared


def _policies(node: Node) -> Values:
    """The policies of a node's kubelet; None for an unknown one. Raises Incomplete if all are."""
    return {key: _setting(node, key) for key in DEFAULTS}


def _setting(node: Node, key: str) -> str | None:
    kubelet = node.kubelet
    try:
        return kubelet.policy(key)
    except Incomplete:
        return None
