"""Where nodes are: a job's nodes should be as close to each other as AWS can place them."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.nodeset import fold
from clusterproof.plugins.core.verdict import concern_if, fail_if
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.aws.placement import (
    Spread,
    instances_of_an_ultraserver,
    job_groups,
    lowest_layers,
    network_layers,
    require_all_known,
    spreads,
    ultraservers,
    zones,
)
from clusterproof.plugins.evidence.cluster import ClusterFacts

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
    found = spreads(job_groups(cluster), zones(cluster))
    wide = [spread for spread in found if len(spread.places) > cluster.threshold("placement.zones")]
    fail_if(wide, f"{_in_words(wide)}; expected each job group in one availability zone")
    require_all_known(found, "availability zone")


@evidence("aws ec2 describe-instance-topology; on a HyperPod node: cat /opt/ml/config/resource_config.json")
def test_network_layers(cluster: ClusterFacts) -> None:
    """Network distance within a job group.

    The highest-numbered layer is the one nearest to the instance: traffic between its network nodes takes more hops. A
    large group cannot avoid this; a site sets placement.network_nodes to the number it expects.

    Remedy (fix configuration): Let the scheduler place jobs by topology, or request capacity in one block.
    """
    found = spreads(job_groups(cluster), lowest_layers(network_layers(cluster)))
    most = int(cluster.threshold("placement.network_nodes"))
    wide = [spread for spread in found if len(spread.places) > most]
    words = f"{_in_words(wide)}; expected each job group on at most {most} network node of the nearest layer"
    concern_if(wide, words)
    require_all_known(found, "network layer")


@evidence("aws sagemaker list-cluster-nodes --cluster-name NAME --query 'ClusterNodeSummaries[].UltraServerInfo'")
def test_ultraserver_block(cluster: ClusterFacts) -> None:
    """UltraServers of a job group.

    Instances within an UltraServer are connected by NVLink, UltraServers only by EFA.

    Remedy (fix configuration): Configure UltraServers as the scheduler's blocks, and request nodes in whole
    UltraServers.
    """
    found = {group: spreads([group], ultraservers(cluster))[0] for group in job_groups(cluster)}
    outside = [
        f"{spread.group or 'the nodes'}: {fold(spread.unknown)} of {len(group.nodes)} nodes in no UltraServer"
        for group, spread in found.items()
        if spread.places and spread.unknown
    ]
    concern_if(outside, f"{'; '.join(outside)}; expected every node of the group in one")
    wide = [
        spread
        for group, spread in found.items()
        if len(spread.places)
        > -(-len(group.nodes) // (instances_of_an_ultraserver(cluster, group) or len(group.nodes)))
    ]
    concern_if(wide, f"{_in_words(wide)}; expected each job group in as few UltraServers as can hold it")


def _in_words(wide: list[Spread]) -> str:
    return "; ".join(spread.in_words for spread in wide)
