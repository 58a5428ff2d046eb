"""File systems under load: how fast does this node write and read?"""

from __future__ import annotations

from collections.abc import Mapping

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import SIGNIFICANT, apart
from clusterproof.plugins.core.verdict import concern_if, incomplete
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.node import Node

pytestmark = [mark.storage, mark.perf, mark.hyperpod_performance_debugger("B")]


@evidence("fio --name=x --directory=DIR --rw=write (read) --bs=1M --size=512M --numjobs=8 --thread --direct=1")
def test_fs_bandwidth(node: Node) -> None:
    """File system bandwidth.

    Eight streams write one scratch file, bypassing the node's own cache (direct I/O), then read it back. A shared file
    system is tested by a few nodes at a time, always the same number, so that conditions are equal. The file was just
    written: a file server may still have it in memory.

    Remedy (investigate): Compare the node's mount options, its network and Lustre's tunables with those of a fast node.
    If all nodes are slow, look at the file system's own throughput (test_fsx_throughput).
    """
    data = node.fs_bandwidth.gb_per_s
    folder = node.fs_bandwidth.folder
    least = node.threshold("load.fs_gb_per_s")
    low = [
        f"{direction} {apart(speed, least, 3, SIGNIFICANT)[0]} GB/s"
        for direction, speed in data.items()
        if speed < least
    ]
    concern_if(low, f"{folder}: {', '.join(low)}; expected at least {least:g} GB/s")
    shared = node.group.medians("fs_bandwidth", speeds)
    share = node.threshold("load.fs_percent")
    usual = {one: shared[f"{one} in {folder}"] for one in data}
    slow = [
        f"{one} {speed:.3g} GB/s where {usual[one].nodes} nodes have {usual[one].value:.3g}"
        for one, speed in data.items()
        if usual[one].is_comparable and speed < share / 100 * usual[one].value
    ]
    concern_if(slow, f"{folder}: {', '.join(slow)}; expected at least {share:g} % of their median")
    if not least and not all(one.is_comparable for one in usual.values()):
        values = ", ".join(f"{one} {speed:.3g} GB/s" for one, speed in data.items())
        incomplete(f"{folder}: {values}; expected further nodes to compare with, or a limit (load.fs_gb_per_s)")


def speeds(node: Node) -> Mapping[str, float]:
    """What the node's group is compared by."""
    return {f"{one} in {node.fs_bandwidth.folder}": speed for one, speed in node.fs_bandwidth.gb_per_s.items()}
