"""Is there room on the file systems that jobs write to?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern_if, fail_if
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.host.facts import Mount
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import is_network, written_to

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
    full, filling = [], []
    for mount in written_to(node.mounts):
        for words, percent in _used(mount) if not node.drains or _is_own(mount) else ():
            if percent >= fail:
                full.append(words)
            elif percent >= worry:
                filling.append(words)
    fail_if(full, f"{', '.join(full)}; expected less than {fail:.0f} % in use")
    concern_if(filling, f"{', '.join(filling)}; expected less than {worry:.0f} % in use")


def _is_own(mount: Mount) -> bool:
    """Whether it is the node's; of unknown type it may be others'."""
    return not known(lambda: is_network(mount.type), True)


def _used(mount: Mount) -> Iterator[tuple[str, float]]:
    """How much of its space and of its inodes is in use, in words and in percent."""
    of = mount.path
    with suppress(Incomplete):  # df alone does not name its type
        of += f" ({mount.type})"
    sizes = {"": ("total_kib", "free_kib"), " of its inodes": ("inodes", "inodes_free")}
    for what, total, free in each(sizes, lambda what: (what, *(getattr(mount, size) for size in sizes[what]))):
        if total and free is not None:
            percent = 100 * (1 - free / total)
            yield f"{of} has {percent:.0f} %{what} in use", percent
