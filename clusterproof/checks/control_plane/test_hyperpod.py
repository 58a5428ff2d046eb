"""The HyperPod cluster: is it in service, and are all its nodes running?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, fail_if, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.cluster import ClusterFacts

pytestmark = [mark.control_plane, mark.preflight, mark.hyperpod_cluster_debugger("B")]


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
