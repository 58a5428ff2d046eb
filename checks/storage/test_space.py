"""Is there room on the file systems that jobs write to?"""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern
from clusterproof.plugins.evidence.field import readings, require
from clusterproof.plugins.evidence.host.facts import Mount
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import is_network, written_to
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.storage, mark.preflight, mark.prolog]


@mark.hyperpod_node_debugger("I.2")
@evidence("df -h; df -i")
def test_space(node: Node) -> None:
    """Space on job file systems.

    Without space, checkpoints, caches and logs cannot be written, however much is free elsewhere; without inodes no
    file can be created even if space is left. Local and network file systems that can be written to are evaluated, each
    once; the root volume, /dev/shm and Lustre's servers have checks of their own. A full file system that others share
    is no reason to keep a node from jobs, so a prolog and a health check evaluate only the node's own.

    Remedy (clean up): Remove old checkpoints, caches and logs, or make the file system larger.
    """
    fail, worry = node.threshold("space.used_fail_percent"), node.threshold("space.used_concern_percent")
    full, filling, unread = [], [], []
    for mount in written_to(node.mounts):
        if node.drains and is_network(mount.type):
            continue
        sizes, missing = readings(mount, "total_kib", "free_kib", "inodes", "inodes_free")
        unread += missing
        for words, percent in _used(mount, sizes):
            if percent >= fail:
                full.append(words)
            elif percent >= worry:
                filling.append(words)
    assert not full, f"{', '.join(full)}; expected less than {fail:.0f} % in use"
    require(why for why in unread if isinstance(why, Incomplete))
    if filling:
        concern(f"{', '.join(filling)}; expected less than {worry:.0f} % in use")


def _used(mount: Mount, sizes: dict[str, int | None]) -> Iterator[tuple[str, float]]:
    """How much of its space and of its inodes is in use, in words and in percent."""
    of = f"{mount.path} ({mount.type})"
    for what, total, free in (
        ("", sizes.get("total_kib"), sizes.get("free_kib")),
        (" of its inodes", sizes.get("inodes"), sizes.get("inodes_free")),
    ):
        if total and free is not None:
            percent = 100 * (1 - free / total)
            yield f"{of} has {percent:.0f} %{what} in use", percent
