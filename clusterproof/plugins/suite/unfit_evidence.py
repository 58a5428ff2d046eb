"""What nodes reported that a gate found unfit: kept as recordings, so that it is there when the node no longer is."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.evidence.recording import recording_file, write_cluster, write_node

MOST = 5  # recordings of a node: the newest
RECORDED = re.compile(r"\d{8}T\d{6}Z", re.ASCII)


def keep_unfit(folder: Path, cluster: Cluster, evidence: NodeEvidence, at: float) -> None:
    """Record what one node of a cluster reported, as `FOLDER/NODE/TIME`; `at` in seconds since 1970. Raises OSError."""
    of_node = folder / recording_file(evidence.node).removesuffix(".json")
    recording = of_node / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(at))
    targets = tuple(target for target in cluster.targets if target.name == evidence.node)
    for old in _recordings(of_node)[: 1 - MOST]:  # first: a full volume has room again
        shutil.rmtree(old)
    try:
        write_cluster(recording, replace(cluster, targets=targets, is_part=True))
        write_node(recording, evidence)
    except OSError:
        shutil.rmtree(recording, ignore_errors=True)
        raise


def _recordings(of_node: Path) -> list[Path]:
    """Those of a node, the oldest first; what else lies there is somebody else's."""
    named = (one for one in of_node.glob("*") if RECORDED.fullmatch(one.name))
    return sorted(one for one in named if one.is_dir() and not one.is_symlink())
