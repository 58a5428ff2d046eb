"""`--cluster capture:PATH`: what a person collected by hand on nodes that nobody here can reach."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterproof.plugins.captures.folder import NoCaptureError, layout, node_name
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target

FORM = "a folder of files that hold the outputs of commands, or one such file (docs/captures.md)"


def capture(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The nodes whose outputs lie in a folder or a file. Raises InventoryError."""
    if not rest:
        raise InventoryError(f"--cluster 'capture:' names no folder; expected capture:PATH, {FORM}")
    path = Path(rest).expanduser()
    try:
        found = layout(path)
    except NoCaptureError as problem:
        raise InventoryError(f"{rest!r:.200}: {problem}; expected {FORM}") from None
    return Cluster(
        name=node_name(path.resolve().name, "capture"),
        connection="capture",
        targets=tuple(Target(name=node.name) for node in found.nodes),
        settings={"capture": str(path)},
    )
