"""The FSx file systems that nodes mount, as FSx describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.aws.asked import mounted_systems
from clusterproof.plugins.core.cluster import Cluster

KEPT = ("FileSystemId", "FileSystemType", "Lifecycle", "StorageCapacity", "StorageType", "DNSName")
CONFIGURATIONS = {
    "LustreConfiguration": ("DeploymentType", "PerUnitStorageThroughput", "ThroughputCapacity", "MountName"),
    "OpenZFSConfiguration": ("DeploymentType", "ThroughputCapacity", "EndpointIpAddress"),
}


def read(account: Account, cluster: Cluster) -> object:
    """What of each file system is needed to know it and its limits, and no more."""
    return {"file_systems": [_record(system) for system in mounted_systems(account, cluster)]}


def _record(system: Mapping[str, Any]) -> dict[str, Any]:
    data = _of(system, KEPT)
    return data | {name: _of(system[name], keys) for name, keys in CONFIGURATIONS.items() if system.get(name)}


def _of(data: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: data[key] for key in keys if key in data}
