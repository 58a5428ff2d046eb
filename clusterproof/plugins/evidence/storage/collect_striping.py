"""The striping of new files in checkpoint folders on Lustre: `lfs getstripe -d`."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.tools import command
from clusterproof.plugins.evidence.storage.collect_mounts import mounted

MAX_FOLDERS = 16


def read(node: Node) -> object:
    """For each folder, the type of its file system, and the layout of its new files."""
    types = {mount["path"]: mount["type"] for mount in mounted(node)}
    rows = {path: {"path": path, "type": _type(path, types)} for path in node.checkpoints[:MAX_FOLDERS]}
    return node.each("folders", rows, lambda path: _folder(node, rows[path]))


def _type(path: str, types: dict[str, str]) -> str:
    above = [mount for mount in types if f"{path}/".startswith(f"{mount.rstrip('/')}/")]
    return types[max(above, key=len)] if above else ""


def _folder(node: Node, row: dict[str, str]) -> dict[str, object]:
    return {**row, **(command(node, "lfs", "getstripe", "-d", row["path"]) if row["type"] == "lustre" else {})}
