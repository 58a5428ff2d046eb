"""`--cluster replay:DIR` and `demo`: a recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster, InventoryError
from clusterproof.plugins.evidence.recording import read_cluster

DEMO = Path(__file__).parents[2] / "fixtures" / "demo"


def replay(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The cluster recorded in a folder. Raises InventoryError."""
    if not rest:
        raise InventoryError("--cluster 'replay:' names no folder; expected replay:DIR, as --record DIR wrote it")
    return read_cluster(Path(rest))


def demo(_rest: str, _options: Mapping[str, str]) -> Cluster:
    """The recorded cluster that comes with the package. Raises InventoryError."""
    return read_cluster(DEMO)
