"""How the files of a checkpoint folder are striped: `lfs getstripe -d` of each that lies on Lustre."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.agent.tools import command
from clusterproof.plugins.evidence.storage.collect_mounts import mounted

MAX_FOLDERS = 16


def read(node: Node) -> object:
    """Of each folder, the type of the file system that it lies on, and the layout of its new files."""
    types = {mount["path"]: mount["type"] for mount in mounted(node)}
    return {"folders": [_folder(node, path, types) for path in node.checkpoints[:MAX_FOLDERS]]}


def _folder(node: Node, path: str, types: dict[str, str]) -> dict[str, object]:
    above = [mount for mount in types if f"{path}/".startswith(f"{mount.rstrip('/')}/")]
    type_ = types[max(above, key=len)] if above else ""
    row: dict[str, object] = {"path": path, "type": type_}
    return {**row, **command(node, "lfs", "getstripe", "-d", path)} if type_ == "lustre" else row
