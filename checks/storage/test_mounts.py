"""File systems: are they mounted, and do they answer?"""

from __future__ import annotations

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern, incomplete
from clusterproof.plugins.evidence.host.facts import Mount
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import is_network, options_of
from clusterproof.plugins.suite.routing import evidence

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
    what = f"{mount.type} from {mount.source}"
    if mount.alive == "hidden":
        incomplete(f"--host-root does not show it: {what}")
    if mount.alive == "slow":
        incomplete(f"{what} was not asked in time: the node is too busy; expected an answer")
    if mount.alive == "covered":
        incomplete(f"a user has mounted a file system over {what}; expected it to be in sight")
    if mount.alive == "hung" and node.occasion == "prolog":
        incomplete(f"{what} did not answer at once; expected an answer")
    says = "hangs" if mount.alive == "hung" else f"says {mount.alive}"
    if mount.alive != "yes" and mount.is_of_a_walk:
        concern(f"{what}, mounted by autofs, {says}; expected an answer")
    assert mount.alive == "yes", f"{what} {says}; expected an answer"


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
    absent = [entry for entry in node.fstab if entry.is_due and not entry.mounted]
    spared = [entry for entry in absent if "nofail" in options_of(entry) and not is_network(entry.type)]
    missing = [f"{entry.path} ({entry.type}, in /etc/fstab)" for entry in absent if entry not in spared]
    missing += [f"{path} (expected by the policy)" for path in node.policy.mounts if path not in node.mount_points]
    own = node.mount_points | {entry.path for entry in node.fstab}
    missing += [f"{path} (mounted on most nodes of the group)" for path in sorted(node.mount_points_of_most - own)]
    assert not missing, f"not mounted: {', '.join(missing)}; expected what /etc/fstab, the policy and the group have"
    if spared:
        named = ", ".join(f"{entry.path} ({entry.type}, nofail in /etc/fstab)" for entry in spared)
        concern(f"not mounted: {named}; expected it, or no such line")
