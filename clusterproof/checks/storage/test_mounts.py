"""Mounted file systems: whether they are mounted as configured, answer, and have free space."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.verdict import (
    Incomplete,
    concern,
    concern_if,
    fail,
    fail_if,
    incomplete,
    not_applicable,
    part,
)
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.field import each, known
from clusterproof.plugins.evidence.group import Values, describe, differences
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import (
    comparable,
    entry_of,
    is_network,
    is_read_only,
    options_of,
    written_to,
)
from clusterproof.plugins.evidence.storage.facts_mounts import FstabEntry, Mount

pytestmark = [mark.storage, mark.preflight]


@mark.prolog
@mark.hyperpod_performance_debugger("B")
@evidence("timeout 5 stat -f PATH; timeout 5 ls PATH")
def test_mounts_alive(mount: Mount, node: Node) -> None:
    """Mount responsiveness.

    A separate process probes each mount. If it hangs, the file server is gone. A stale handle means that the file
    system was replaced on the server, and ENODEV that the disk is gone, even if the kernel has cached some of its data.
    A slow file server is a concern: all nodes wait for their data. A file system that autofs mounts on access and that
    does not answer is a concern too, unless fstab, a systemd unit or the policy requires it, since users choose such
    servers; their response time is ignored. A prolog is too short to conclude that a file system hangs. Permission
    denied is a failure only for root.

    Remedy (restore service): Check whether the file server can be reached (ping SERVER). Unmount the file system
    (umount -l PATH) and mount it again; reboot the node if that hangs.
    """
    took_s, soon_s = known(lambda: mount.read_s, None) or 0.0, node.threshold("mounts.answer_concern_s")
    if took_s >= soon_s:
        is_of_others = known(lambda: is_network(mount.type), True) and not known(lambda: mount.is_of_a_walk, False)
        concern_if(is_of_others, f"{_of(mount)} took {took_s:.2g} s to answer; expected less than {soon_s:g} s")
    if mount.alive == "yes":
        return
    what = _of(mount)
    if mount.alive == "hidden":
        incomplete(f"not visible under --host-root: {what}")
    if mount.alive == "slow":
        incomplete(f"{what} was not probed in time: the node is too busy; expected an answer")
    if mount.alive == "covered":
        incomplete(f"a user has mounted a file system over {what}; expected it to be visible")
    if mount.alive in ("EACCES", "EPERM") and node.if_denied:
        incomplete(f"{what} may not be read ({mount.alive}){node.if_denied}", cause="mounts may not be read")
    if mount.alive == "hung" and node.occasion == "prolog":
        incomplete(f"{what} did not answer at once; expected an answer")
    says = "hangs" if mount.alive == "hung" else f"says {mount.alive}"
    if known(lambda: mount.is_of_a_walk, False):
        concern(f"{what}, mounted by autofs, {says}; expected an answer")
    fail(f"{what} {says}; expected an answer")


def _of(mount: Mount) -> str:
    return f"{known(lambda: mount.type, 'a file system')} from {known(lambda: mount.source, 'a source not read')}"


@mark.prolog
@mark.ami
@mark.hyperpod_node_debugger("D")
@evidence("findmnt --fstab; findmnt")
def test_mounts_expected(node: Node) -> None:
    """Expected mounts.

    Every file system in /etc/fstab, in the policy or on most nodes of the group must be mounted; otherwise a job writes
    to the root volume or does not find its data. A local file system that fstab marks nofail is a concern.

    Remedy (restore service): Mount it (mount PATH) and read the error. For a network file system, check the node's
    network and security group.
    """
    absent = [entry for entry in each(known(lambda: node.fstab, ()), _if_absent) if entry]
    spared = [entry for entry in absent if "nofail" in options_of(entry) and not is_network(entry.type)]
    missing = [f"{entry.path} ({entry.type}, in /etc/fstab)" for entry in absent if entry not in spared]
    with part:
        own = set(each(known(lambda: node.fstab, ()), lambda entry: entry.path if _is_mounted_or_due(entry) else ""))
        missing += [f"{path} (expected by the policy)" for path in node.policy.mounts if path not in node.mount_points]
        of_most = sorted(node.majority_mount_points - node.mount_points - own)
        missing += [f"{path} (mounted on most nodes of the group)" for path in of_most]
    fail_if(missing, f"not mounted: {', '.join(missing)}; expected what /etc/fstab, the policy and the group have")
    named = ", ".join(f"{entry.path} ({entry.type}, nofail in /etc/fstab)" for entry in spared)
    concern_if(spared, f"not mounted: {named}; expected it mounted, or the line removed")
    left_out = known(lambda: node.mounts_left_out, 0)
    if left_out:
        incomplete(f"{left_out} more mounted file systems were not checked; expected fewer")


def _if_absent(entry: FstabEntry) -> FstabEntry | None:
    """A line of fstab that is mounted at boot, but is not mounted."""
    return entry if not entry.mounted and entry.is_due else None


def _is_mounted_or_due(entry: FstabEntry) -> bool:
    """Whether what fstab says of it is enough: one that is mounted otherwise (noauto) is compared with the group.

    One that systemd mounts when it is used may not have been used here.
    """
    return "x-systemd.automount" in options_of(entry) or entry.mounted or entry.is_due


REMOUNTED = "errors=remount-ro"
NFS = ("nfs", "nfs4")
FROM_FSX = ".fsx."  # in the DNS name of a file system of FSx; those of EFS do not take nconnect


@mark.ami
@mark.hyperpod_performance_debugger("B")
@evidence("findmnt -t lustre,nfs,nfs4 -o TARGET,SOURCE,OPTIONS; findmnt --fstab -t lustre,nfs,nfs4")
def test_mount_options(mount: Mount, node: Node) -> None:
    """Mount options.

    Without noatime, Lustre writes for every file that is read; without flock, programs that lock files fail. A soft NFS
    mount returns errors, or wrong data, when the server is slow. A single TCP connection cannot saturate a fast
    network. Without _netdev, the boot may mount Lustre before the network is up; systemd knows NFS by its type.

    Remedy (fix configuration): Change the options in /etc/fstab (see FSx's mount guide) and remount the file system.
    """
    if mount.type != "lustre" and mount.type not in NFS:
        not_applicable(f"{mount.type} is neither Lustre nor NFS")
    wrong = dict([*known(lambda: [*_wrong_of(mount, node)], []), *known(lambda: [*_wrong_in_fstab(mount, node)], [])])
    concern_if(wrong, f"{', '.join(wrong)}; expected {', '.join(wrong.values())}")


def _wrong_of(mount: Mount, node: Node) -> Iterator[tuple[str, str]]:
    """What is wrong with the options, and what would be right."""
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
    entry = entry_of(mount, node.fstab) if mount.type == "lustre" else None
    if entry is not None and "_netdev" not in options_of(entry):
        yield "no _netdev in /etc/fstab", "_netdev"


@mark.ami
@mark.prolog
@mark.hyperpod_node_debugger("I")
@evidence("findmnt -o TARGET,FSTYPE,OPTIONS | grep -w ro; dmesg | grep -i remount")
def test_mounts_writable(mount: Mount, node: Node) -> None:
    """File system write access.

    The kernel remounts a damaged file system read-only; an administrator may also have done so and forgotten. The mount
    options are compared with /etc/fstab; nothing is written. If /etc/fstab has no line for it, a read-only file system
    with errors=remount-ro is a concern.

    Remedy (reset or reboot): Find the error in the kernel log (dmesg | grep -i remount). If a disk is broken, replace
    the node; otherwise reboot it, which runs fsck.
    """
    options = options_of(mount)
    if not is_read_only(mount):
        return
    if mount.image_type:  # which the kernel shows like this unless it was mounted with `ro`
        not_applicable(f"{mount.image_type} is an image, to which nothing can be written")
    by_kernel = "mounted to be written to, and refused by the kernel since: an error"
    type_ = known(lambda: mount.type, "mounted")
    assert options[0] != "rw", f"{type_} read-only, {by_kernel}; expected read-write"
    after_error = (
        type_.startswith("ext")
        and REMOUNTED in options
        and f"{type_} read-only, which {REMOUNTED} makes it after an error"
    )
    try:
        entry = entry_of(mount, node.fstab)
    except Incomplete as unread:
        if after_error:
            concern(f"{after_error}; expected read-write, unless /etc/fstab says otherwise")
        incomplete(f"{type_} read-only, and {unread}; expected what /etc/fstab asks for")
    is_for_writing = entry is not None and "ro" not in options_of(entry)
    assert not is_for_writing, f"{type_} read-only; expected read-write, as in /etc/fstab"
    concern_if(entry is None and after_error, f"{after_error}; expected read-write, or a line in /etc/fstab")
    not_applicable("mounted read-only, and /etc/fstab does not require read-write")


@mark.ami
@mark.hyperpod_node_debugger("D")
@evidence("findmnt -o TARGET,SOURCE,FSTYPE,OPTIONS")
def test_mount_uniform(node: Node) -> None:
    """Mounts compared with the group.

    Compares type and access mode of the file systems mounted at the same path, and also source and options of network
    file systems. storage.mounts_expected covers file systems that are mounted only on some nodes.

    Remedy (fix configuration): Compare /etc/fstab and the lifecycle script's log with another node's, and mount the
    file system in the same way.
    """
    different = differences(node, "mounts", _comparable_mounts, absent=None)
    concern_if(different, describe(different))


def _comparable_mounts(node: Node) -> Values:
    values: dict[str, str | None] = {}
    for mount in each(node.mounts, comparable):
        values |= mount
    return values


@mark.prolog
@mark.hyperpod_node_debugger("I.2")
@evidence("df -h; df -i")
def test_space(node: Node) -> None:
    """Space on job file systems.

    Without free space, checkpoints, caches and logs cannot be written; without free inodes, no file can be created even
    if space is left. Evaluates each writable local and network file system once; other checks cover the root volume,
    /dev/shm and Lustre's targets. A full shared file system is no reason to block jobs on a node, so a prolog and a
    health check evaluate only local file systems.

    Remedy (clean up): Remove old checkpoints, caches and logs, or make the file system larger.
    """
    fail, worry = node.threshold("space.used_fail_percent"), node.threshold("space.used_concern_percent")
    full, filling = [], []
    for mount in written_to(node.mounts):
        for usage, percent in _used(mount) if not node.drains or _is_own(mount) else ():
            if percent >= fail:
                full.append(usage)
            elif percent >= worry:
                filling.append(usage)
    fail_if(full, f"{', '.join(full)}; expected less than {fail:.0f} % in use")
    concern_if(filling, f"{', '.join(filling)}; expected less than {worry:.0f} % in use")


def _is_own(mount: Mount) -> bool:
    """Whether it is the node's own; one of unknown type may be shared."""
    return not known(lambda: is_network(mount.type), True)


def _used(mount: Mount) -> Iterator[tuple[str, float]]:
    """How much of its space and of its inodes is in use, as text and in percent."""
    of = mount.path
    with suppress(Incomplete):  # df alone does not name its type
        of += f" ({mount.type})"
    sizes = {"": ("total_kib", "free_kib"), " of its inodes": ("inodes", "inodes_free")}
    for what, total, free in each(sizes, lambda what: (what, *(getattr(mount, size) for size in sizes[what]))):
        if total and free is not None:
            percent = 100 * (1 - free / total)
            yield f"{of} has {percent:.0f} %{what} in use", percent
