"""Every node of the HyperPod cluster, controllers too, as SageMaker lists them."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import Description, hostnames, nodes
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("hyperpod",)
KEPT = ("InstanceId", "InstanceGroupName", "InstanceType", "InstanceStatus", "CurrentImageReleaseVersion")


def read(account: Account, cluster: Cluster) -> object:
    """The nodes; `hostname` is the name in reports, empty for those that are not validated."""
    names = hostnames(cluster)
    return {"nodes": [_node(node, names.get(str(node["InstanceId"]), "")) for node in nodes(account, cluster)]}


def _node(data: Description, name: str) -> dict[str, object]:
    ultraserver = data.get("UltraServerInfo") or {}
    return {
        "hostname": name,
        **{key: data[key] for key in KEPT if key in data},
        "UltraServerId": ultraserver.get("Id", ""),
        "UltraServerType": ultraserver.get("Type", ""),
    }
