"""File systems: are they mounted, and do they answer?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, concern_if, fail, fail_if, incomplete, part
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.host.facts import FstabEntry, Mount
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import is_network, options_of

pytestmark = [mark.storage, mark.preflight]


@mark.prolog
@mark.hyperpod_performance_debugger("B")
@evidence("timeout 5 stat -f PATH; timeout 5 ls PATH")
def test_mounts_alive(mount: Mount, node: Node) -> None:
    """Mount responsiveness.

    Each mount is probed by a process of its own. One that hangs waits for a file server that is gone; a stale handle
    means that the server's side was replaced, ENODEV that the disk is gone, whatever the kernel still remembers of it.
    What autofs mounts on access is a concern, unless fstab, a systemd unit or the policy asks for it. A prolog does not
    have the time to conclude that a file system hangs.

    Remedy (restore service): Check whether the file server can be reached. Unmount it (umount -l) and mount it again;
    reboot if it hangs.
    """
    if mount.alive == "yes":
        return
    what = f"{known(lambda: mount.type, 'a file system')} from {known(lambda: mount.source, 'a source not read')}"
    if mount.alive == "hidden":
        incomplete(f"--host-root does not show it: {what}")
    if mount.alive == "slow":
        incomplete(f"{what} was not asked in time: the node is too busy; expected an answer")
    if mount.alive == "covered":
        incomplete(f"a user has mounted a file system over {what}; expected it to be in sight")
    if mount.alive == "hung" and node.occasion == "prolog":
        incomplete(f"{what} did not answer at once; expected an answer")
    says = "hangs" if mount.alive == "hung" else f"says {mount.alive}"
    if known(lambda: mount.is_of_a_walk, False):
        concern(f"{what}, mounted by autofs, {says}; expected an answer")
    fail(f"{what} {says}; expected an answer")


@mark.prolog
@mark.ami
@mark.hyperpod_node_debugger("D")
@evidence("findmnt --fstab; findmnt")
def test_mounts_expected(node: Node) -> None:
    """Expected mounts.

    What /etc/fstab, the policy and most nodes of the group have must be there, or a job writes to the root volume or
    does not find its data. A local file system that fstab allows to be absent (nofail) is a concern.

    Remedy (restore service): Mount it (mount PATH) and read the error; check the node's network and security group.
    """
    absent = [entry for entry in each(known(lambda: node.fstab, ()), _if_absent) if entry]
    spared = [entry for entry in absent if "nofail" in options_of(entry) and not is_network(entry.type)]
    missing = [f"{entry.path} ({entry.type}, in /etc/fstab)" for entry in absent if entry not in spared]
    with part:
        own = set(each(known(lambda: node.fstab, ()), lambda entry: entry.path))
        missing += [f"{path} (expected by the policy)" for path in node.policy.mounts if path not in node.mount_points]
        of_most = sorted(node.mount_points_of_most - node.mount_points - own)
        missing += [f"{path} (mounted on most nodes of the group)" for path in of_most]
    fail_if(missing, f"not mounted: {', '.join(missing)}; expected what /etc/fstab, the policy and the group have")
    named = ", ".join(f"{entry.path} ({entry.type}, nofail in /etc/fstab)" for entry in spared)
    concern_if(spared, f"not mounted: {named}; expected it, or no such line")
    left_out = known(lambda: node.mounts_left_out, 0)
    if left_out:
        incomplete(f"{left_out} more file systems are mounted, which were not looked at; expected fewer")


def _if_absent(entry: FstabEntry) -> FstabEntry | None:
    """A line of fstab that is to be mounted at boot and is not."""
    return entry if not entry.mounted and entry.is_due else None
