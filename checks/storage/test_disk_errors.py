"""What the kernel log reports about local disks and the file systems on them."""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import Incomplete, concern
from clusterproof.plugins.evidence.kernel_log.events_host import DiskEvent
from clusterproof.plugins.evidence.kernel_log.wording import in_list, in_words, require_whole_log
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.suite.routing import evidence

pytestmark = [mark.storage, mark.preflight, mark.prolog, mark.hyperpod_node_debugger("F")]


@evidence("journalctl -k -b | grep -E 'EXT4-fs|XFS|nvme|I/O error|Aborting journal'; dmesg -l err,crit")
def test_disk_errors(node: Node) -> None:
    """Local disk errors.

    After a journal error ext4 stops writing (Remounting filesystem read-only), and XFS shuts a file system down, which
    its mount options never show. While it stays mounted, every write to it fails. Other errors, and timed-out commands
    of an NVMe disk, are concerns, as is a file system that stopped and does not seem to be mounted. Images that users
    mount through loop devices are ignored.

    Remedy (replace): Save what can be read, then unmount, check (fsck, xfs_repair) and mount again. If the disk itself
    has errors, replace the node: nvme smart-log.
    """
    events = [event for event in node.kernel_events if isinstance(event, DiskEvent)]
    stopped: dict[str, DiskEvent] = {}
    for event in events:
        if event.stops_writes:
            stopped[event.device] = event
        elif event.kind == "fresh":
            stopped.pop(event.device, None)
    in_use = [event for event in stopped.values() if event.device in _mounted(node)]
    assert not in_use, f"{in_list(in_words(in_use, _words, node))}; expected its file system to take writes"
    require_whole_log(node)
    noted = [*stopped.values(), *(event for event in events if event.kind in ("error", "late"))]
    if noted:
        concern(f"{in_list(in_words(noted, _words, node))}; expected no error of a disk")


def _words(event: DiskEvent) -> str:
    return f"{event.device}: {event.words}"


def _mounted(node: Node) -> set[str]:
    """The kernel's names of the devices that are mounted, as far as their mounts show them."""
    try:
        return {mount.source.removeprefix("/dev/") for mount in node.mounts}
    except Incomplete:
        return set()
