"""Free space on each target of mounted Lustre file systems. The numbers come from the servers: this may hang."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.storage.collect_lustre import FOLDER, MAX_CLIENTS, ROOTS, connections, whole

KINDS = {"osc": "ost", "mdc": "mdt"}
NUMBERS = {
    "total_kib": "kbytestotal",
    "free_kib": "kbytesfree",
    "available_kib": "kbytesavail",
    "inodes": "filestotal",
    "inodes_free": "filesfree",
}


def read(node: Node) -> object:
    """Space and inodes of every OST and MDT, and whether this client uses it. Raises Absent."""
    pairs = connections(node, KINDS)
    rows = {
        (kind, name): {"kind": KINDS[kind], "name": name.split(f"-{kind}-")[0]} for kind, name in pairs[:MAX_CLIENTS]
    }
    others = {"left_out": max(0, len(pairs) - MAX_CLIENTS)}
    return node.each("targets", rows, lambda pair: _target(node, rows[pair], *pair), others)


def _target(node: Node, row: dict[str, str], kind: str, name: str) -> dict[str, object]:
    target: dict[str, object] = {**row}
    node.at(f"space of {target['name']}")
    active = node.text(f"{FOLDER}/{kind}/{name}/active", absent="1")
    target["active"] = active != "0" if isinstance(active, str) else active
    if target["active"] is True:
        for key, file in NUMBERS.items():
            target[key] = whole(_text(node, f"{kind}/{name}/{file}"))
    return target


def _text(node: Node, path: str) -> object:
    """From /sys, or from /proc on older clients."""
    text = node.text(f"{FOLDER}/{path}", absent="")
    return text if text != "" else node.text(f"{ROOTS[0]}/{path}")
