"""What the system allows network software to do."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog import threshold
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import not_applicable

pytestmark = [pytest.mark.network, pytest.mark.preflight, pytest.mark.prolog, pytest.mark.ami]


@pytest.mark.hyperpod_nccl("17")
@evidence("ulimit -l; grep 'locked memory' /proc/$(pgrep -o slurmd)/limits")
def test_memlock(node: Node) -> None:
    """Locked memory is limited too low for EFA.

    EFA pins the memory that it sends from. Jobs inherit the limit of the daemon that starts them, not that of a login.

    Remedy: Set memlock to unlimited in /etc/security/limits.conf, and LimitMEMLOCK=infinity in the daemon's unit;
    restart it.
    """
    if not node.efa_devices and node.expected("efa") == 0:
        not_applicable("no EFA device on this node")
    least_gib = threshold("memlock.minimum_gib")
    limits = [(name, limit) for name, limit in node.memlock_bytes.items() if limit is not None]
    low = [f"{limit / 2**20:.0f} MiB for {name}" for name, limit in limits if limit < least_gib * 2**30]
    seen = ", ".join(low)
    assert not seen, f"memlock is {seen}; expected at least {least_gib:.0f} GiB, or unlimited"
