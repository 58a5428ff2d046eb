"""What nodes reported that a gate found unfit: kept as recordings, so that it is there when the node no longer is."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.recording import recording_file, write_cluster, write_node

MOST = 5  # recordings of a node: the newest


def keep_unfit(folder: Path, cluster: Cluster, evidence: NodeEvidence, at: float) -> None:
    """Record what one node of a cluster reported, as `FOLDER/NODE/TIME`; `at` in seconds since 1970. Raises OSError."""
    of_node = folder / recording_file(evidence.node).removesuffix(".json")
    recording = of_node / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    targets = tuple(target for target in cluster.targets if target.name == evidence.node)
    write_cluster(recording, replace(cluster, targets=targets, is_part=True))
    write_node(recording, evidence)
    for old in sorted(of_node.iterdir())[:-MOST]:
        shutil.rmtree(old)
