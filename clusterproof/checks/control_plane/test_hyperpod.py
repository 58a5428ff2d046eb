"""HyperPod: the status of the cluster and its nodes, instance groups, recovery and deep health checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import listed, quoted
from clusterproof.plugins.core.verdict import concern_if, fail_if, incomplete, not_applicable, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.facts_account import instances_of
from clusterproof.plugins.evidence.aws.facts_fsx import clock
from clusterproof.plugins.evidence.aws.facts_hyperpod import DeepHealthCheckError, HyperpodNode
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.field import each, known

pytestmark = [mark.control_plane, mark.preflight]

MAX_NODES = 20  # in words
MAX_VALUES = 5  # of a group in words
MAX_ERRORS = 3  # of deep health checks in words
UNWELL = ("Failure", "DeepHealthCheckInProgress")  # states in which a deep health check may be why


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
    concern_if(data.failure, f"the cluster is in service and still shows a failure: {data.failure}; expected none")


@mark.hyperpod_cluster_debugger("B")
@evidence("aws sagemaker list-cluster-nodes --cluster-name NAME; aws sagemaker describe-cluster --cluster-name NAME")
def test_nodes_running(cluster: ClusterFacts) -> None:
    """HyperPod node state.

    For a node in the state Failure, the finding includes SageMaker's reason. For other nodes it does not, since the
    reason of an earlier failure remains after they recover. If a node failed or is under check, the last errors that
    deep health checks logged are a concern: any node may write to that log, so they prove nothing against one.

    Remedy (restore service): Read the node's status message. A group that stays below its target is waiting for
    capacity, or its lifecycle script fails.
    """
    cluster.require_hyperpod()
    with part:
        every = cluster.hyperpod_nodes
        ill = [in_words(node) for node in every if node.status != "Running"]
        more = f" and {len(ill) - MAX_NODES} more" if len(ill) > MAX_NODES else ""
        fail_if(ill, f"{', '.join(ill[:MAX_NODES])}{more}; expected every node Running")
        unwell = frozenset(node.instance_id for node in every if node.status in UNWELL)
        errors = list(_logged(cluster.deep_health_check_errors, unwell)) if unwell else []
        concern_if(errors, f"deep health checks logged {listed(errors)}; expected no error")
    groups = cluster.hyperpod.groups
    short = [f"{group.name} has {group.current} of {group.target}" for group in groups if group.current != group.target]
    fail_if(short, f"{', '.join(short)}; expected every group complete")
    odd = [f"the group {group.name} is {group.status}" for group in groups if group.status not in (None, "InService")]
    concern_if(odd, f"{', '.join(odd)}; expected every group InService")


def in_words(node: HyperpodNode) -> str:
    """`i-0a (workers) is Failure: …`, with SageMaker's reason."""
    status = node.status
    message = known(lambda: quoted(node.message), "") if status == "Failure" else ""
    why = f": {message}" if message else ""
    return f"{node.instance_id} ({node.group}) is {status}{why}"


def _logged(errors: Iterable[DeepHealthCheckError], unwell: frozenset[str]) -> Iterator[str]:
    """The last errors that name one of these instances, or none at all: `of i-0a at 2026-11-30 18:36: …`."""
    about = [(error, sorted(unwell.intersection(error.instance_ids))) for error in errors]
    shown = [(error, ids) for error, ids in about if ids or not error.instance_ids]
    for error, ids in shown[-MAX_ERRORS:]:
        whose = f"of {', '.join(ids)}" if ids else "of a node that they do not name"
        yield f"{whose} at {clock(error.time)}: {quoted(error.text)}"
    if len(shown) > MAX_ERRORS:
        yield f"{len(shown) - MAX_ERRORS} before"


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
    recovery = cluster.hyperpod.node_recovery
    concern_if(recovery != "Automatic", f"NodeRecovery is {recovery}; expected Automatic")


@mark.hyperpod_node_debugger("F")
@evidence(f"{DESCRIBE} --query 'InstanceGroups[].[InstanceGroupName,OnStartDeepHealthChecks]'")
def test_deep_health_checks(cluster: ClusterFacts) -> None:
    """Deep health checks at start.

    Remedy (fix configuration): Set the instance group's OnStartDeepHealthChecks to InstanceStress and
    InstanceConnectivity (aws sagemaker update-cluster).
    """
    cluster.require_hyperpod()
    count = cluster.catalog.accelerators
    groups = [group for group in cluster.hyperpod.groups if any(count(name) != 0 for name in group.counts)]
    if not groups:
        not_applicable("no instance group has accelerators")
    without = {group.name: sorted(DEEP_HEALTH_CHECKS - set(group.deep_health_checks)) for group in groups}
    seen = [f"{name} starts without {' and '.join(missing)}" for name, missing in without.items() if missing]
    concern_if(seen, f"{', '.join(seen)}; expected both for every group with accelerators")


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
    mixed = list(_unlike((group, kind) for group, kind in data if kind))
    concern_if(mixed, f"{', '.join(mixed)}; expected one instance type in each group")
    silent = sum(not kind for _, kind in data)
    if silent:
        incomplete(f"the instance type of {silent} of {len(data)} nodes is not known; expected each known")


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
        data = [*each(instances_of(cluster), lambda instance: (group_of[instance.hostname], instance.image))]
    mixed = list(_unlike((group, image) for group, image in data if image))
    concern_if(mixed, f"{', '.join(mixed)}; expected one image in each group")
    silent = sum(not image for _, image in data)
    if silent:
        incomplete(f"AWS reports no image for {silent} of {len(data)} nodes; expected one for each")


def _unlike(data: Iterable[tuple[str, object]]) -> Iterator[str]:
    """The groups with several values, and how many nodes have each."""
    groups: dict[str, Counter[str]] = {}
    for group, value in data:
        groups.setdefault(group, Counter())[str(value)] += 1
    for group, counts in groups.items():
        if len(counts) > 1:
            have = " and ".join(f"{count} of {value}" for value, count in counts.most_common(MAX_VALUES))
            more = f" and {len(counts) - MAX_VALUES} more" if len(counts) > MAX_VALUES else ""
            yield f"{group or 'the nodes'}: {have}{more}"
