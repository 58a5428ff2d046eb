"""Shared memory: what NCCL and data loaders live in."""

from __future__ import annotations

import pytest

from clusterproof.plugins.catalog import threshold
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import concern, incomplete

pytestmark = [
    pytest.mark.host,
    pytest.mark.preflight,
    pytest.mark.prolog,
    pytest.mark.ami,
    pytest.mark.hyperpod_node_debugger("I"),
]

GIB_IN_KIB = 2**20


@pytest.mark.epilog
@evidence("df -h /dev/shm; ls -la /dev/shm")
def test_dev_shm(node: Node) -> None:
    """/dev/shm is absent, too small or nearly full.

    NCCL and data loaders exchange data through /dev/shm; with too little of it they die with a bus error.

    Remedy: Mount a tmpfs of at least 16 GiB on /dev/shm; remove what ended jobs have left there.
    """
    mount = node.mount_at("/dev/shm")
    assert mount is not None, "nothing is mounted on /dev/shm; expected a tmpfs"
    assert mount.type == "tmpfs", f"/dev/shm is {mount.type}; expected tmpfs"
    if mount.total_kib is None or mount.free_kib is None:
        incomplete(f"/dev/shm does not tell its size ({mount.alive})")
    total_gib, memory_gib = mount.total_kib / GIB_IN_KIB, node.boot.memory_kib / GIB_IN_KIB
    share = threshold("shm.minimum_percent_of_memory") / 100
    least_gib = min(threshold("shm.minimum_gib"), memory_gib * share)
    assert total_gib >= least_gib, f"/dev/shm has {total_gib:.3g} GiB; expected at least {least_gib:.3g} GiB"
    used = 100 * (1 - mount.free_kib / mount.total_kib) if mount.total_kib else 100.0
    limit = threshold("shm.used_concern_percent")
    if used > limit:
        concern(f"/dev/shm is {used:.0f} % full; expected at most {limit:.0f} %")
