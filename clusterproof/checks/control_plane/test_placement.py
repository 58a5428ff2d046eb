"""Placement of nodes: in EC2's network topology, by Kubernetes labels and in Kueue's topologies."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.placement import (
    Spread,
    fewest_ultraservers,
    job_groups,
    lowest_layers,
    network_layers,
    require_all_known,
    spreads,
    ultraservers,
    zones,
)
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.kubernetes.nodes import MemberNode
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.control_plane, mark.preflight, mark.hyperpod_cluster_debugger("B")]


@evidence(
    "aws sagemaker describe-cluster-node --cluster-name NAME --node-id ID --query NodeDetails.Placement; "
    "EC2: aws ec2 describe-instances --instance-ids ID --query 'Reservations[].Instances[].Placement'"
)
def test_single_az(cluster: ClusterFacts) -> None:
    """Availability zones of a job group.

    EFA does not cross availability zones. A job group is an instance group whose nodes have accelerators.

    Remedy (fix configuration): Give the instance group subnets of one zone only, and replace the nodes outside it.
    """
    groups = spreads(job_groups(cluster), zones(cluster))
    wide = [spread for spread in groups if len(spread.places) > cluster.threshold("placement.zones")]
    fail_if(wide, f"{_in_words(wide)}; expected each job group in one availability zone")
    require_all_known(groups, "availability zone")


@evidence("aws ec2 describe-instance-topology; on a HyperPod node: cat /opt/ml/config/resource_config.json")
def test_network_layers(cluster: ClusterFacts) -> None:
    """Network distance within a job group.

    The highest-numbered layer is the one nearest to the instance: traffic between its network nodes takes more hops. A
    large group cannot avoid this; a site sets placement.network_nodes to the number it expects.

    Remedy (fix configuration): Let the scheduler place jobs by topology, or request capacity in one block.
    """
    groups = spreads(job_groups(cluster), lowest_layers(network_layers(cluster)))
    most = int(cluster.threshold("placement.network_nodes"))
    wide = [spread for spread in groups if len(spread.places) > most]
    message = f"{_in_words(wide)}; expected each job group on at most {most} network node of the nearest layer"
    concern_if(wide, message)
    require_all_known(groups, "network layer")


@evidence("aws sagemaker list-cluster-nodes --cluster-name NAME --query 'ClusterNodeSummaries[].UltraServerInfo'")
def test_ultraserver_block(cluster: ClusterFacts) -> None:
    """UltraServers of a job group.

    Instances within an UltraServer are connected by NVLink, UltraServers only by EFA.

    Remedy (fix configuration): Configure UltraServers as the scheduler's blocks, and request nodes in whole
    UltraServers.
    """
    by_group = {group: spreads([group], ultraservers(cluster))[0] for group in job_groups(cluster)}
    outside = [
        f"{spread.group or 'the nodes'}: {fold(spread.unknown)} of {len(group.nodes)} nodes in no UltraServer"
        for group, spread in by_group.items()
        if spread.places and spread.unknown
    ]
    concern_if(outside, f"{'; '.join(outside)}; expected every node of the group in one")
    wide = [
        spread
        for group, spread in by_group.items()
        if len(spread.places) > fewest_ultraservers(cluster, group, max(map(len, spread.places.values()), default=0))
    ]
    concern_if(wide, f"{_in_words(wide)}; expected each job group in as few UltraServers as can hold it")


def _in_words(wide: list[Spread]) -> str:
    return "; ".join(spread.description for spread in wide)


@evidence(
    "kubectl get nodes -L topology.kubernetes.io/zone,topology.k8s.aws/network-node-layer-3; "
    "aws ec2 describe-instance-topology --instance-ids ID"
)
def test_k8s_topology_labels(k8s_node: MemberNode, cluster: ClusterFacts) -> None:
    """Node topology labels.

    Schedulers use the zone and network nodes in these labels to place a job's pods close together. A node without them
    is left out or placed anywhere; wrong labels spread jobs out and slow them down.

    Remedy (fix configuration): Check that the cloud controller manager runs and is allowed to query the topology;
    delete a wrong label, or let the node register again.
    """
    listed = k8s_node.listed
    in_ec2, zone = _layers_in_ec2(cluster, k8s_node.label), _own_zone(k8s_node.node)
    is_other = listed.zone and zone and listed.zone != zone
    fail_if(is_other, f"label {listed.zone}, but the node is in {zone}; expected the same zone")
    is_elsewhere = listed.layers and in_ec2 and listed.layers != in_ec2
    message = f"labels {'/'.join(listed.layers)}, but EC2 reports {'/'.join(in_ec2)}; expected the same network nodes"
    fail_if(is_elsewhere, message)
    lacking = [f"{label}, as {holder} has" for label, holder in _lacking(k8s_node, bool(in_ec2), bool(zone))]
    concern_if(
        lacking, f"no label for {', no label for '.join(lacking)}; expected labels for its zone and network nodes"
    )
    if not (listed.zone or listed.layers or listed.ultraserver):
        not_applicable("nothing says where this node is")


def _lacking(node: MemberNode, in_ec2: bool, has_zone: bool) -> Iterator[tuple[str, str]]:
    """The labels that it lacks, and which nodes have them."""
    listed, alike = node.listed, node.alike
    for label, own, by_others, by_itself in (
        ("its zone", bool(listed.zone), any(other.zone for other in node.others), has_zone and "the node itself"),
        ("its network nodes", bool(listed.layers), any(other.layers for other in alike), in_ec2 and "EC2"),
        ("its UltraServer", bool(listed.ultraserver), any(other.ultraserver for other in alike), False),
    ):
        holder = "another of its group" if by_others else by_itself
        if not own and holder:
            yield label, holder


def _layers_in_ec2(cluster: ClusterFacts, name: str) -> tuple[str, ...]:
    """The network nodes above a node as EC2 reports them; empty if it was not asked, or does not know."""
    try:
        return next((instance.layers for instance in cluster.instance_topologies if instance.hostname == name), ())
    except (Incomplete, NotApplicable):
        return ()


def _own_zone(node: Node) -> str:
    try:
        return node.metadata.identity.availability_zone
    except (Incomplete, NotApplicable):
        return ""


@evidence("kubectl get resourceflavors,topologies -o yaml; kubectl get nodes -l LABELS")
def test_k8s_queues(cluster: ClusterFacts) -> None:
    """Kueue flavors and their nodes.

    Kueue admits a job to a flavor even if no node matches it: the job's pods then stay pending. A node without the
    labels of the flavor's topology gets no pods.

    Remedy (fix configuration): Correct nodeLabels in the ResourceFlavor, name a Topology that exists, or label the
    nodes.
    """
    flavors = cluster.kueue_flavors
    if not flavors:
        not_applicable("Kueue has no flavors")
    lost = [
        f"{flavor.name} names the topology {flavor.topology}, which does not exist"
        for flavor in flavors
        if not flavor.has_topology
    ]
    fail_if(lost, f"{', '.join(lost)}; expected topologies that exist")
    empty = [f"{flavor.name} ({flavor.labels or 'any node'}) matches no node" for flavor in flavors if not flavor.nodes]
    bare = [
        f"{flavor.name}: {level.count} of {flavor.nodes} nodes without {level.level} ({fold(level.nodes)})"
        for flavor in flavors
        for level in flavor.unlabelled
    ]
    seen = ", ".join([*empty, *bare])
    concern_if(seen, f"{seen}; expected every flavor to have nodes with its topology's labels")
    if left_out := cluster.kueue_flavors_left_out:
        incomplete(f"{left_out} more flavors were not checked; expected at most {len(flavors)}")
