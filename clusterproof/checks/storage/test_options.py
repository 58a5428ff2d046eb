"""How file systems are mounted: options, read-only, alike on every node."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import concern_if, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.group import Values, differences, in_words
from clusterproof.plugins.evidence.host.facts import Mount
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import entry_of, is_read_only, mounted_alike, options_of

pytestmark = [mark.storage, mark.preflight, mark.ami]

NFS = ("nfs", "nfs4")
FROM_FSX = ".fsx."  # in the DNS name of a file system of FSx; those of EFS do not take nconnect


@mark.hyperpod_performance_debugger("B")
@evidence("findmnt -t lustre,nfs,nfs4 -o TARGET,SOURCE,OPTIONS; findmnt --fstab -t lustre,nfs,nfs4")
def test_mount_options(mount: Mount, node: Node) -> None:
    """Mount options.

    Lustre without noatime writes for every file that is read; without flock, programs that lock files fail. A soft NFS
    mount returns errors, or wrong data, when the server is slow. One TCP connection does not fill a fast network.
    Without _netdev a boot may try to mount before the network is up.

    Remedy (fix configuration): Change the options in /etc/fstab (FSx's guides name them) and mount the file system
    again.
    """
    if mount.type != "lustre" and mount.type not in NFS:
        not_applicable(f"{mount.type} is neither Lustre nor NFS")
    wrong = dict([*known(lambda: [*_wrong_of(mount, node)], []), *known(lambda: [*_wrong_in_fstab(mount, node)], [])])
    concern_if(wrong, f"{', '.join(wrong)}; expected {', '.join(wrong.values())}")


def _wrong_of(mount: Mount, node: Node) -> Iterator[tuple[str, str]]:
    """What is wrong with the options, and what is right."""
    options = options_of(mount)
    if mount.type == "lustre":
        yield from ((f"no {name}", name) for name in ("noatime", "flock") if name not in options)
        return
    if "soft" in options or "softerr" in options:
        yield "soft", "hard"
    connections = next((option[9:] for option in options if option.startswith("nconnect=")), "1")
    if connections == "1" and FROM_FSX in known(lambda: mount.source, ""):
        yield "one TCP connection", f"nconnect={node.threshold('nfs.nconnect'):.0f}"


def _wrong_in_fstab(mount: Mount, node: Node) -> Iterator[tuple[str, str]]:
    entry = entry_of(mount, node.fstab)
    if entry is not None and "_netdev" not in options_of(entry):
        yield "no _netdev in /etc/fstab", "_netdev"


@mark.prolog
@mark.hyperpod_node_debugger("I")
@evidence("findmnt -o TARGET,FSTYPE,OPTIONS | grep -w ro; dmesg | grep -i remount")
def test_mounts_writable(mount: Mount, node: Node) -> None:
    """File system write access.

    A kernel that finds a file system damaged remounts it read-only, and so may somebody who forgot to undo it. The
    mount's options are compared with what /etc/fstab asks for: nothing is written.

    Remedy (reset or reboot): Read the kernel log for the error. If a disk is broken, replace the node; otherwise reboot
    it: fsck then runs.
    """
    options = options_of(mount)
    if not is_read_only(mount):
        return
    by_kernel = "mounted to be written to, and refused by the kernel since: an error"
    type_ = known(lambda: mount.type, "mounted")
    assert options[0] != "rw", f"{type_} read-only, {by_kernel}; expected read-write"
    entry = entry_of(mount, node.fstab)
    is_for_writing = entry is not None and "ro" not in options_of(entry)
    assert not is_for_writing, f"{type_} read-only; expected read-write, as in /etc/fstab"
    not_applicable("mounted read-only, and nothing asks for read-write")


@mark.hyperpod_node_debugger("D")
@evidence("findmnt -o TARGET,SOURCE,FSTYPE,OPTIONS")
def test_mount_uniform(node: Node) -> None:
    """Mounts compared with the group.

    Type and access of what is mounted at the same place are compared, and of network file systems also source and
    options. What is mounted on some nodes only is covered by another check.

    Remedy (fix configuration): Compare /etc/fstab and the lifecycle script's log with those of another node; mount it
    as they do.
    """
    different = differences(node, "mounts", _mounted_alike, absent=None)
    concern_if(different, in_words(different))


def _mounted_alike(node: Node) -> Values:
    values: dict[str, str | None] = {}
    for mount in each(node.mounts, mounted_alike):
        values |= mount
    return values
