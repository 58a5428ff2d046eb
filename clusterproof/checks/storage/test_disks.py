"""Disks: NVMe devices that are missing, failing or unused, and EBS volumes that reach their limits."""

from __future__ import annotations

from math import inf

from clusterproof.plugins.catalog.instance_types import machine_row
from clusterproof.plugins.core.marks import mark
from clusterproof.plugins.core.message import format_pair
from clusterproof.plugins.core.verdict import NotApplicable, concern_if, fail_if, incomplete, not_applicable
from clusterproof.plugins.evaluation.routing import evidence
from clusterproof.plugins.evidence.fact import Absent
from clusterproof.plugins.evidence.field import at_least_one, each, known, readings
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.storage.facts import NvmeController

pytestmark = [mark.storage, mark.preflight]


POOLING = frozenset({"zfs", "btrfs"})


@mark.ami
@mark.hyperpod_node_debugger("D")
@evidence("nvme list; lsblk -o NAME,MODEL,SIZE,TYPE,MOUNTPOINT")
def test_nvme_scratch(node: Node) -> None:
    """Local NVMe disks.

    Counts the machine's own NVMe disks, not EBS volumes. A disk that is not part of a mounted file system, array or
    volume is unused scratch space: caches and checkpoints then fill the root volume. Where ZFS or Btrfs is mounted, it
    may use such a disk, which zpool status or btrfs filesystem show tells.

    Remedy (fix configuration): If a disk is missing, stop and start the instance, or replace the node. If disks are not
    mounted, check what should mount them (the image's service, the lifecycle script).
    """
    expected = known(lambda: local_disks_due(node), 0)
    is_ours = bool(machine_row(node.type_name)) or readings(node, "is_outside_ec2")[0].get("is_outside_ec2")
    is_all_local = bool(expected and is_ours)  # of any model
    controllers = [controller for controller in node.nvme_controllers if not controller.is_remote]
    places = each(controllers, lambda controller: (controller, is_all_local or controller.is_local))
    local = [controller for controller, is_local in places if is_local]
    unknown = 0 if is_all_local else sum(not readings(nvme, "is_local")[0] for nvme in controllers)
    if not (expected or local):
        not_applicable(f"{node.type_name or 'this node'} has no local NVMe disk")
    fail_if(len(local) + unknown < expected, f"{len(local)} local NVMe disks; expected {expected}")
    disks = [*each(local, lambda controller: (known(lambda: controller.label, "a controller"), controller.disks))]
    bare = ", ".join(label for label, has in disks if not has)
    fail_if(bare, f"no disk on {bare}; expected one on each controller")
    every = [(known(lambda: disk.name, "a disk"), disk) for _, has in disks for disk in has]  # noqa: B023 - at once
    empty = ", ".join(filter(None, each(every, lambda row: row[0] if row[1].kib == 0 else "")))
    fail_if(empty, f"{empty} has a capacity of 0; expected its model's capacity")
    unused = ", ".join(filter(None, each(every, lambda row: "" if row[1].mounted else row[0])))
    pooled = _pooling(node) if unused else ""
    if pooled:
        incomplete(
            f"not mounted: {unused}, unless {pooled} uses them; expected every local disk in a mounted file system"
        )
    concern_if(unused, f"not mounted: {unused}; expected every local disk in a mounted file system")


def _pooling(node: Node) -> str:
    """The types of mounted file systems that take disks of which no mount tells: `zfs`."""
    mounts = readings(node, "mounts")[0].get("mounts", ())
    return " or ".join(sorted(POOLING & {readings(mount, "type")[0].get("type") for mount in mounts}))


def local_disks_due(node: Node) -> int:
    """How many disks its type has; none if the number is unknown for a node of its kind. Raises Incomplete."""
    try:
        return int(node.of_type("nvme"))
    except NotApplicable:
        return 0


@mark.ami
@mark.prolog
@mark.hyperpod_node_debugger("F")
@evidence("grep . /sys/class/nvme/*/state")
def test_nvme_state(nvme: NvmeController) -> None:
    """NVMe controller state.

    The controller is resetting, dead or abandoned by the driver, and its disk cannot be read. Media errors are in the
    kernel log; the disk's own counters are not read, since that takes a program run as root. One that another machine
    serves over the network is a concern, as that machine may be the cause.

    Remedy (replace): Search the kernel log (journalctl -k | grep nvme). Replace the node if the controller does not
    return to live.
    """
    if nvme.state != "live":
        seen = f"{known(lambda: nvme.model, 'the controller')} is {nvme.state}"
        concern_if(nvme.is_remote, f"{seen}, served over {nvme.transport}; expected live")
        fail_if(not nvme.is_remote, f"{seen}; expected live")


LIMITS = {
    "volume_iops_us": "the volume's IOPS",
    "volume_throughput_us": "the volume's throughput",
    "instance_iops_us": "the instance's IOPS",
    "instance_throughput_us": "the instance's throughput",
}


@mark.hyperpod_performance_debugger("B")
@evidence("sudo nvme amzn stats /dev/nvme0")
def test_ebs_limits(node: Node) -> None:
    """EBS performance limits.

    Each volume, and all volumes of an instance together, have a limit on IOPS and bytes per second. Requests above it
    wait: programs and images load slowly from a root volume, and logs and checkpoints are written slowly. The mean
    since boot is evaluated, including the first minutes, when packages and images are loaded, and including jobs' own
    reads and writes.

    Remedy (fix configuration): Raise the volume's IOPS and throughput (aws ec2 modify-volume; gp3 starts at 3000 IOPS
    and 125 MB/s), or move images, caches and checkpoints to local NVMe disks or FSx. An instance's own limits only rise
    with a larger instance.
    """
    try:
        volumes = at_least_one(list(node.ebs_volumes), "volume of EBS")
    except Absent:
        not_applicable("no EBS volume")
    limit_s, period_s = node.threshold("ebs.exceeded_s"), node.threshold("ebs.period_s")
    periods = max(1.0, known(lambda: node.boot.uptime_s, inf) / period_s)
    above = []
    limits = [(volume, name) for volume in volumes for name in LIMITS]
    for volume, limit, exceeded_s in each(limits, lambda pair: (pair[0], LIMITS[pair[1]], getattr(*pair) / 1e6)):
        if exceeded_s > limit_s * periods:
            mean = format_pair(exceeded_s / periods, limit_s)[0]
            above.append(f"{volume.label}: above {limit} for {exceeded_s:.0f} s, {mean} s in {period_s:g} s")
    concern_if(above, f"{', '.join(above)}; expected at most {limit_s:g} s")
