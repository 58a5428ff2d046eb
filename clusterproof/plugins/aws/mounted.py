"""The file systems of FSx that the nodes of a cluster mount, as DescribeFileSystems shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.aws.account import Account
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.evidence.fsx.mounted import SETTING, Source

PAGE = 100


def mounted_systems(account: Account, cluster: Cluster) -> list[Mapping[str, Any]]:
    """Those of the region's file systems that nodes mount. Raises AwsDenied, AwsError."""
    lines = filter(None, cluster.settings.get(SETTING, "").split("\n"))
    sources = [Source(*line.split(" ", 1)) for line in lines]
    if not sources:
        return []
    shown = account.listed("fsx", "describe_file_systems", "FileSystems", PaginationConfig={"PageSize": PAGE})
    return [system for system in shown if any(source.is_of(system) for source in sources)]
