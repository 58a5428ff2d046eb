"""A recorded run, and the layout of its folder.

`DIR/cluster.json` names the nodes; `DIR/nodes/` holds one file of evidence for each, in the form of
`clusterproof.plugins.core.evidence.to_json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from io import BufferedWriter
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target, require_unique
from clusterproof.plugins.core.evidence import EvidenceError, NodeEvidence, load, to_json
from clusterproof.plugins.core.opened import created, read_whole
from clusterproof.plugins.core.strict import Table, read_text
from clusterproof.plugins.evidence.aws.by_evidence import SETTING, may_be_on_ec2

SCHEMA = 1
CONTROL_PLANE_FILE = "control_plane.json"
PAIRWISE_FILES = "pairwise*.jsonl"  # of all campaigns between its nodes
AWS_SETTINGS = ("region", "arn", SETTING)  # settings of a cluster that AWS knows, or may know
SLURM_SETTINGS = ("submit_host", "partition")  # … and Slurm
KUBERNETES_SETTINGS = ("kubernetes",)  # … and Kubernetes
MAX_EFA = 1000  # of a node; none has more than 32
MAX_BYTES = 64 * 1024 * 1024  # of one file; a node's answer has 8 million at most, and is indented here
MAX_WHOLE_BYTES = 16 * 1024**3  # of all nodes; 10,000 healthy ones have some 3 billion
_LONGEST_FILE = 200  # bytes; file systems end at 255, and the name while it is written is longer


def recording_file(name: str) -> str:
    """The file under `nodes/` of the node called `name`: one for each name, on any file system."""
    safe = quote_from_bytes(name.encode("utf-8", "surrogatepass"), safe="").replace("~", "%7E")
    safe = re.sub(r"^\.", "%2E", safe) or "%"
    if len(safe) > _LONGEST_FILE:
        digest = hashlib.sha256(safe.encode()).hexdigest()
        safe = f"{safe[: _LONGEST_FILE - len(digest) - 1]}~{digest}"
    return f"{safe}.json"


def read_cluster(folder: Path) -> Cluster:
    """The cluster of `folder/cluster.json`. Raises InventoryError."""
    path = folder / "cluster.json"
    text = read_text(path, "a folder that --record wrote", below=folder)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InventoryError(f"{path} is not JSON: {problem}; expected a file that --record wrote") from None
    return _cluster(Table.of(str(path), document), folder)


def write_cluster(folder: Path, cluster: Cluster) -> None:
    """Write `folder/cluster.json`, whole or not at all, and make the folder. Raises OSError."""
    setting = {SETTING: "by evidence"} if may_be_on_ec2(cluster) else {}
    record = {
        "schema": SCHEMA,
        "cluster": cluster.name,
        "connection": cluster.connection,
        "aws": {key: cluster.settings[key] for key in AWS_SETTINGS if key in cluster.settings} | setting,
        "slurm": {key: cluster.settings[key] for key in SLURM_SETTINGS if key in cluster.settings},
        "kubernetes": {key: cluster.settings[key] for key in KUBERNETES_SETTINGS if key in cluster.settings},
        **({"is_part": True} if cluster.is_part else {}),
        "nodes": [_node_to_json(target) for target in cluster.targets],
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "cluster.json", json.dumps(record, indent=1) + "\n")


def begin_recording(folder: Path, cluster: Cluster) -> None:
    """Write `folder/cluster.json`, where nothing says any more what its nodes once answered. Raises OSError."""
    for old in (CONTROL_PLANE_FILE, *(f"nodes/{recording_file(target.name)}" for target in cluster.targets)):
        (folder / old).unlink(missing_ok=True)
    write_cluster(folder, cluster)


def write_node(folder: Path, evidence: NodeEvidence) -> None:
    """Write what one node reported into `folder/nodes/`, whole or not at all. Raises OSError."""
    nodes = folder / "nodes"
    nodes.mkdir(parents=True, exist_ok=True)
    write_whole(nodes / recording_file(evidence.node), json.dumps(to_json(evidence), indent=1) + "\n")


def write_control_plane(folder: Path, evidence: NodeEvidence) -> None:
    """Write what the control plane reported about the cluster, whole or not at all. Raises OSError."""
    write_whole(folder / CONTROL_PLANE_FILE, json.dumps(to_json(evidence), indent=1) + "\n")


def read_control_plane(folder: Path, cluster: str) -> NodeEvidence:
    """What the control plane reported about a recorded cluster; nothing where none can be read."""
    try:
        return load(read_whole(folder / CONTROL_PLANE_FILE, MAX_BYTES, folder))
    except FileNotFoundError:
        return NodeEvidence(cluster)
    except (OSError, EvidenceError) as problem:
        return NodeEvidence(cluster, detail=f"{CONTROL_PLANE_FILE}: {getattr(problem, 'strerror', None) or problem}")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that no reader ever sees half of it. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with BufferedWriter(created(part)) as file:
            file.write(text.encode())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _cluster(table: Table, folder: Path) -> Cluster:
    schema = table.values.get("schema")
    if schema != SCHEMA:
        raise InventoryError(f"{table.where}: schema is {schema!r:.30}; expected {SCHEMA}")
    targets = require_unique(tuple(_target(node) for node in table.tables("nodes")), table.where)
    if not targets:
        raise InventoryError(f"{table.where} has no nodes; expected at least one")
    return Cluster(
        name=table.text("cluster", default=None),
        connection="replay",
        targets=targets,
        settings={
            "recording": str(folder),
            **({"recorded_by": by} if (by := table.text("connection")) else {}),
            **_of_source(table.table("aws"), AWS_SETTINGS),
            **_of_source(table.table("slurm"), SLURM_SETTINGS),
            **_of_source(table.table("kubernetes"), KUBERNETES_SETTINGS),
        },
        is_part=table.flag("is_part"),
    )


def _of_source(table: Table, keys: tuple[str, ...]) -> dict[str, str]:
    table.only(*keys)
    return {key: table.text(key) for key in keys if key in table.values}


def _target(node: Table) -> Target:
    return Target(
        name=node.text("name", default=None),
        address=node.text("address"),
        group=node.text("group"),
        instance_type=node.text("instance_type"),
        expect=node.expect(),
        efa_attached=node.number("efa_attached", 0, MAX_EFA) if "efa_attached" in node.values else None,
    )


def _node_to_json(target: Target) -> dict[str, Any]:
    entry = {
        "name": target.name,
        "address": target.address,
        "group": target.group,
        "instance_type": target.instance_type,
        "expect": dict(target.expect),
    }
    attached = {} if target.efa_attached is None else {"efa_attached": target.efa_attached}
    return {key: value for key, value in entry.items() if value} | attached
