"""The HyperPod cluster: in service, its groups repaired and checked, and its nodes running and all alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.cluster import ClusterFacts

pytestmark = [mark.control_plane, mark.preflight]


@mark.hyperpod_cluster_debugger("B")
@evidence("aws sagemaker describe-cluster --cluster-name NAME")
def test_cluster_in_service(cluster: ClusterFacts) -> None:
    """HyperPod cluster state.

    Remedy (restore service): If it is being updated, wait; otherwise read its failure message and its events.
    """
    cluster.require_hyperpod()
    data = cluster.hyperpod
    failure = f" ({data.failure})" if data.failure else ""
    assert data.status == "InService", f"the cluster is {data.status}{failure}; expected InService"
    if data.failure:
        concern(f"the cluster is in service and still shows a failure: {data.failure}; expected none")


@mark.hyperpod_cluster_debugger("B")
@evidence("aws sagemaker list-cluster-nodes --cluster-name NAME; aws sagemaker describe-cluster --cluster-name NAME")
def test_nodes_running(cluster: ClusterFacts) -> None:
    """HyperPod node state.

    Remedy (restore service): Read the node's status message. A group that stays below its target is waiting for
    capacity, or its lifecycle script fails.
    """
    cluster.require_hyperpod()
    with part:
        every = cluster.hyperpod_nodes
        ill = [f"{node.instance_id} ({node.group}) is {node.status}" for node in every if node.status != "Running"]
        fail_if(ill, f"{', '.join(ill[:20])}; expected every node Running")
    groups = cluster.hyperpod.groups
    short = [f"{group.name} has {group.current} of {group.target}" for group in groups if group.current != group.target]
    fail_if(short, f"{', '.join(short)}; expected every group complete")


DEEP_HEALTH_CHECKS = {"InstanceStress", "InstanceConnectivity"}
DESCRIBE = "aws sagemaker describe-cluster --cluster-name NAME"
LIST = "aws sagemaker list-cluster-nodes --cluster-name NAME; EC2: aws ec2 describe-instances --instance-ids ID"


@mark.hyperpod_node_debugger("F")
@evidence(f"{DESCRIBE} --query NodeRecovery")
def test_node_recovery(cluster: ClusterFacts) -> None:
    """Automatic node recovery.

    Remedy (fix configuration): Set NodeRecovery to Automatic with UpdateCluster, unless somebody watches the cluster
    and replaces nodes.
    """
    cluster.require_hyperpod()
    data = cluster.hyperpod.node_recovery
    if data != "Automatic":
        concern(f"NodeRecovery is {data}; expected Automatic")


@mark.hyperpod_node_debugger("F")
@evidence(f"{DESCRIBE} --query 'InstanceGroups[].[InstanceGroupName,OnStartDeepHealthChecks]'")
def test_deep_health_checks(cluster: ClusterFacts) -> None:
    """Deep health checks at start.

    Remedy (fix configuration): Set OnStartDeepHealthChecks of the group to InstanceStress and InstanceConnectivity.
    """
    cluster.require_hyperpod()
    count = cluster.catalog.accelerators
    groups = [group for group in cluster.hyperpod.groups if any(count(name) != 0 for name in group.counts)]
    if not groups:
        not_applicable("no instance group of it has accelerators")
    without = {group.name: sorted(DEEP_HEALTH_CHECKS - set(group.deep_health_checks)) for group in groups}
    seen = [f"{name} starts without {' and '.join(missing)}" for name, missing in without.items() if missing]
    if seen:
        concern(f"{', '.join(seen)}; expected both of every group with accelerators")


@mark.hyperpod_cluster_debugger("B")
@evidence(LIST)
def test_mixed_instance_types(cluster: ClusterFacts) -> None:
    """Instance types in a group.

    A collective is as slow as its slowest node.

    Remedy (fix configuration): Create a separate group for each instance type.
    """
    if cluster.is_hyperpod:
        data = [(node.group, node.ec2_type) for node in cluster.hyperpod_nodes]
    else:
        data = [(member.group, member.ec2_type) for member in cluster.members]
    mixed = list(_unlike(data))
    if mixed:
        concern(f"{', '.join(mixed)}; expected one instance type in each group")


@mark.hyperpod_version_checker
@evidence(LIST)
def test_image_uniform(cluster: ClusterFacts) -> None:
    """Machine images in a group.

    Remedy (fix configuration): Update the software of the whole group (UpdateClusterSoftware), or replace the nodes
    that are behind.
    """
    if cluster.is_hyperpod:
        data = [(node.group, node.image) for node in cluster.hyperpod_nodes]
    else:
        group_of = {member.name: member.group for member in cluster.members}
        data = [(group_of[one.hostname], one.image) for one in cluster.ec2_instances]
    mixed = list(_unlike((group, image) for group, image in data if image))
    concern_if(mixed, f"{', '.join(mixed)}; expected one image in each group")
    silent = sum(not image for _, image in data)
    if silent:
        incomplete(f"AWS reports no image for {silent} of {len(data)} nodes; expected that of each")


def _unlike(data: Iterable[tuple[str, object]]) -> Iterator[str]:
    """The groups that have several values, each with how many nodes have which."""
    groups: dict[str, Counter[str]] = {}
    for group, value in data:
        groups.setdefault(group, Counter())[str(value)] += 1
    for group, counts in groups.items():
        if len(counts) > 1:
            have = " and ".join(f"{count} of {value}" for value, count in counts.most_common(5))
            yield f"{group or 'the nodes'}: {have}"
