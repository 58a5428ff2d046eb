"""The HyperPod cluster and all its nodes, as SageMaker tells of them."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.inventory.model import Cluster

PAGE = 100


def read(account: Account, cluster: Cluster) -> object:
    """The cluster with its instance groups, and every node."""
    name = cluster.settings["arn"]
    nodes = account.listed(
        "sagemaker", "list_cluster_nodes", "ClusterNodeSummaries", ClusterName=name, PaginationConfig={"PageSize": PAGE}
    )
    told = account.call("sagemaker", "describe_cluster", ClusterName=name)
    return {
        "cluster": {key: value for key, value in told.items() if key != "ResponseMetadata"},
        "nodes": list(nodes),
    }
