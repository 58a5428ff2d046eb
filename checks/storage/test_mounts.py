"""File systems: are they mounted, and do they answer?"""

from __future__ import annotations

import pytest

from clusterproof.plugins.facts.host import Mount
from clusterproof.plugins.facts.node import Node
from clusterproof.plugins.routing import evidence
from clusterproof.plugins.verdict import incomplete

pytestmark = [pytest.mark.storage, pytest.mark.preflight]


@pytest.mark.hyperpod_performance_debugger("B")
@evidence("timeout 5 stat -f PATH; timeout 5 ls PATH")
def test_mounts_alive(mount: Mount) -> None:
    """A mounted file system does not answer.

    Each is touched by a process of its own. One that hangs waits for a file server that is gone; a stale handle means
    that the server's side was replaced.

    Remedy: See whether the file server can be reached. Unmount it (umount -l) and mount it again; reboot if it hangs.
    """
    if mount.alive == "hidden":
        incomplete(f"--host-root does not show it: {mount.type} from {mount.source}")
    assert mount.alive != "hung", f"{mount.type} from {mount.source} hangs; expected an answer"
    assert mount.alive == "yes", f"{mount.type} from {mount.source} says {mount.alive}; expected an answer"


@pytest.mark.ami
@pytest.mark.hyperpod_node_debugger("D")
@evidence("findmnt --fstab; findmnt")
def test_mounts_expected(node: Node) -> None:
    """A file system is not mounted.

    What /etc/fstab, the policy and most nodes of the group have must be there, else a job writes to the root volume
    or does not find its data.

    Remedy: Mount it (mount PATH) and read the error; look at the node's network and security group.
    """
    missing = [
        f"{entry.path} ({entry.type}, in /etc/fstab)" for entry in node.fstab if entry.is_due and not entry.mounted
    ]
    missing += [f"{path} (expected by the policy)" for path in node.policy.mounts if path not in node.mount_points]
    own = node.mount_points | {entry.path for entry in node.fstab}
    missing += [f"{path} (mounted on most nodes of the group)" for path in sorted(node.mount_points_of_most - own)]
    assert not missing, f"not mounted: {', '.join(missing)}; expected what /etc/fstab, the policy and the group have"
