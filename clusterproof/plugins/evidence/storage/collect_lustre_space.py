"""What each target of the mounted Lustre file systems has left. The numbers come from the servers: this may hang."""

from __future__ import annotations

from clusterproof.plugins.agent.reading import Absent, Node
from clusterproof.plugins.evidence.storage.collect_lustre import FOLDER, MAX_CLIENTS, ROOTS, clients, whole

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
    if not any(node.exists(path) for path in ("/sys/module/lustre", FOLDER, ROOTS[0])):
        raise Absent("no Lustre client: no module lustre is loaded")
    pairs = [(kind, name) for kind in KINDS for name in clients(node, kind)]
    return {
        "targets": [_target(node, kind, name) for kind, name in pairs[:MAX_CLIENTS]],
        "left_out": max(0, len(pairs) - MAX_CLIENTS),
    }


def _target(node: Node, kind: str, name: str) -> dict[str, object]:
    target: dict[str, object] = {"kind": KINDS[kind], "name": name.split(f"-{kind}-")[0]}
    node.at(f"space of {target['name']}")
    active = node.text(f"{FOLDER}/{kind}/{name}/active", absent="1")
    target["active"] = active != "0" if isinstance(active, str) else active
    if target["active"] is True:
        for key, file in NUMBERS.items():
            target[key] = whole(_text(node, f"{kind}/{name}/{file}"))
    return target


def _text(node: Node, path: str) -> object:
    """From /sys, or from /proc where an older client has it."""
    text = node.text(f"{FOLDER}/{path}", absent="")
    return text if text != "" else node.text(f"{ROOTS[0]}/{path}")
