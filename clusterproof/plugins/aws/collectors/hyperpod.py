"""The HyperPod cluster, as SageMaker describes it: what checks read, and nothing that only names things."""

from __future__ import annotations

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import Description, described, types_of
from clusterproof.plugins.core.cluster import Cluster

KINDS = ("hyperpod",)
OF_CLUSTER = ("ClusterStatus", "FailureMessage", "NodeRecovery", "VpcConfig")
OF_GROUP = (
    "InstanceGroupName",
    "CurrentCount",
    "TargetCount",
    "Status",
    "OnStartDeepHealthChecks",
    "OverrideVpcConfig",
)


def read(account: Account, cluster: Cluster) -> object:
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
