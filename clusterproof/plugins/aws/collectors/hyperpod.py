"""The HyperPod cluster and its nodes, as SageMaker describes them; of that only what checks read."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.resources import Description, described, hostnames, nodes, types_of
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("hyperpod",)
OF_CLUSTER = ("ClusterStatus", "FailureMessage", "NodeRecovery", "VpcConfig")
OF_NODE = ("InstanceId", "InstanceGroupName", "InstanceType", "InstanceStatus", "CurrentImageReleaseVersion")
OF_GROUP = (
    "InstanceGroupName",
    "CurrentCount",
    "TargetCount",
    "Status",
    "OnStartDeepHealthChecks",
    "OverrideVpcConfig",
)


def read_hyperpod(account: Account, cluster: Cluster) -> object:
    """The cluster with its instance groups."""
    data = described(account, cluster)
    kept: dict[str, object] = {key: data[key] for key in OF_CLUSTER if key in data}
    for key in ("InstanceGroups", "RestrictedInstanceGroups"):
        kept[key] = [_group(group) for group in data.get(key, ())]
    return {"cluster": kept}


def _group(data: Description) -> dict[str, object]:
    volumes = [config.get("EbsVolumeConfig", {}) for config in data.get("InstanceStorageConfigs", ())]
    sizes = [volume["VolumeSizeInGB"] for volume in volumes if "VolumeSizeInGB" in volume]
    kept = {key: data[key] for key in OF_GROUP if key in data}
    return {**kept, "CountsByType": types_of(data), "VolumeSizesInGB": sizes}


def read_hyperpod_nodes(account: Account, cluster: Cluster) -> object:
    """The nodes; `hostname` is the name in reports, empty for those that are not validated."""
    names = hostnames(cluster)
    return {"nodes": [_node(node, names.get(str(node["InstanceId"]), "")) for node in nodes(account, cluster)]}


def _node(data: Description, name: str) -> dict[str, object]:
    ultraserver = data.get("UltraServerInfo") or {}
    return {
        "hostname": name,
        **{key: data[key] for key in OF_NODE if key in data},
        "UltraServerId": ultraserver.get("Id", ""),
        "UltraServerType": ultraserver.get("Type", ""),
    }
