"""What the system allows network software to do."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.network, mark.preflight, mark.prolog, mark.job, mark.ami]


@mark.hyperpod_nccl("17")
@evidence("ulimit -l; grep 'locked memory' /proc/$(pgrep -o slurmd)/limits")
def test_memlock(node: Node) -> None:
    """Locked memory limit.

    RDMA pins the memory that it sends from. Jobs inherit the limit of the daemon that starts them, not that of a login.

    Remedy (fix configuration): Set memlock to unlimited in /etc/security/limits.conf, and LimitMEMLOCK=infinity in the
    daemon's unit; restart it.
    """
    if not node.rdma_devices and node.expected("efa") == 0:
        not_applicable("no EFA, InfiniBand or RoCE device on this node")
    least_gib = node.threshold("memlock.minimum_gib")
    limits = [(name, limit) for name, limit in node.memlock_bytes.items() if limit is not None]
    seen = ", ".join(f"{in_words(limit)} for {name}" for name, limit in limits if limit < least_gib * 2**30)
    assert not seen, f"memlock is {seen}; expected at least {least_gib:g} GiB, or unlimited"


def in_words(size: int) -> str:
    """Bytes in KiB, or in MiB from one on."""
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"
