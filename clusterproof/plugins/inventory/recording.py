"""`--cluster replay:DIR`, `demo` and `capture:PATH`: what was recorded, or collected by hand, at another time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterproof.plugins.captures.folder import NoCaptureError, layout, node_name
from clusterproof.plugins.core.cluster import Cluster, InventoryError, Target
from clusterproof.plugins.evidence.recording import read_cluster

FORM = "a folder of files that hold the outputs of commands, or one such file (docs/captures.md)"
DEMO = Path(__file__).parents[2] / "fixtures" / "demo"


def replay(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The cluster recorded in a folder. Raises InventoryError."""
    if not rest:
        raise InventoryError("--cluster 'replay:' names no folder; expected replay:DIR, as --record DIR wrote it")
    return read_cluster(Path(rest))


def demo(_rest: str, _options: Mapping[str, str]) -> Cluster:
    """The recorded cluster that comes with the package. Raises InventoryError."""
    return read_cluster(DEMO)


def capture(rest: str, _options: Mapping[str, str]) -> Cluster:
    """The nodes whose outputs lie in a folder or a file. Raises InventoryError."""
    if not rest:
        raise InventoryError(f"--cluster 'capture:' names no folder; expected capture:PATH, {FORM}")
    path = Path(rest).expanduser()
    try:
        captured = layout(path)
    except NoCaptureError as problem:
        raise InventoryError(f"{rest!r:.200}: {problem}; expected {FORM}") from None
    return Cluster(
        name=node_name(path.resolve().name, "capture"),
        connection="capture",
        targets=tuple(Target(name=node.name) for node in captured.nodes),
        settings={"capture": str(path)},
    )
