"""File systems and disks."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, Fault
from tests.testbed.image import Link, NodeImage
from tests.testbed.lustre import with_mount, with_mount_words
from tests.testbed.needs import needs_hung_mount
from tests.testbed.node import (
    healthy_p5,
    with_file,
    with_hung_mount,
    with_line,
    with_slow_mount,
    with_tmpfs,
    without_file,
)
from tests.testbed.nvme import SCRATCH, VOLUME

ELSEWHERE = "10.0.0.9@tcp:/abcdefgh /data lustre defaults,noatime,flock,_netdev 0 0"
NFS = "920 1 0:1048077 / /home rw,noatime - nfs4 fs-0a1b2c3d.fsx.us-east-1.amazonaws.com:/fsx rw,{},addr=10.0.0.7"
NFS_FSTAB = "fs-0a1b2c3d.fsx.us-east-1.amazonaws.com:/fsx /home nfs4 noatime,_netdev 0 0"
STALE = "921 1 0:1048078 / /data rw,noatime - nfs4 10.0.0.7:/data rw,hard"
OF_A_HOME = "vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,nconnect=16,clientaddr=10.0.0.20"


def with_home() -> NodeImage:
    """A p5 whose home directories FSx for OpenZFS serves."""
    return with_mount(with_line(healthy_p5(), "/etc/fstab", NFS_FSTAB), "/home", NFS.format(OF_A_HOME))


def with_home_options(image: NodeImage, old: str, new: str) -> NodeImage:
    return with_mount_words(image, "/home", old, new)


MOUNTED = (
    Fault(
        "a file server that does not answer",
        lambda image: with_hung_mount(image, "/data"),
        {"storage.mounts_alive": FAIL},
        "/data: fuse.sshfs",
        marks=(needs_hung_mount,),
    ),
    Fault(
        "a file server that does not answer between jobs",
        lambda image: with_hung_mount(image, "/data"),
        {"storage.mounts_alive": FAIL},
        "/data: fuse.sshfs",
        occasion="health check",
        marks=(needs_hung_mount,),
    ),
    Fault(
        "a file server that does not answer at once before a job",
        lambda image: with_hung_mount(image, "/data"),
        {"storage.mounts_alive": INCOMPLETE},
        "/data: fuse.sshfs from testbed did not answer at once",
        occasion="prolog",
        marks=(needs_hung_mount,),
    ),
    Fault(
        "a file server that takes a second to answer",
        lambda image: with_slow_mount(image, "/data"),
        {"storage.mounts_alive": CONCERN},
        "/data: fuse.sshfs from testbed took 1",
        marks=(needs_hung_mount,),
    ),
    Fault(
        "a file system that answers with an error",
        lambda image: with_mount(with_file(image, "/data", Link("/data")), "/data", STALE),
        {"storage.mounts_alive": FAIL},
        "/data: nfs4 from 10.0.0.7:/data says ELOOP; expected an answer",
    ),
    Fault(
        "a file system of fstab that is not mounted",
        lambda image: with_line(image, "/etc/fstab", ELSEWHERE),
        {"storage.mounts_expected": FAIL},
        "/data (lustre, in /etc/fstab)",
    ),
    Fault(
        "a disk that fstab lets be absent",
        lambda image: with_line(image, "/etc/fstab", "/dev/sdb1 /data auto defaults,nofail 0 2"),
        {"storage.mounts_expected": CONCERN},
        "/data (auto, nofail in /etc/fstab)",
    ),
    Fault(
        "a Lustre file system without flock",
        lambda image: with_mount_words(image, "/fsx", ",flock", ""),
        {"storage.mount_options": CONCERN, "storage.mount_uniform": CONCERN},
        "/fsx: no flock; expected flock",
    ),
    Fault(
        "a Lustre file system that fstab mounts before the network is up",
        lambda image: with_file(image, "/etc/fstab", str(image.files["/etc/fstab"]).replace(",_netdev", "")),
        {"storage.mount_options": CONCERN},
        "no _netdev in /etc/fstab; expected _netdev",
    ),
    Fault(
        "a soft NFS mount",
        lambda image: with_home_options(image, ",hard,", ",soft,"),
        {"storage.mount_options": CONCERN, "storage.mount_uniform": CONCERN},
        "/home: soft; expected hard",
        base=with_home,
    ),
    Fault(
        "an NFS mount of FSx with one connection",
        lambda image: with_home_options(image, ",nconnect=16", ""),
        {"storage.mount_options": CONCERN, "storage.mount_uniform": CONCERN},
        "one TCP connection; expected nconnect=16",
        base=with_home,
    ),
    Fault(
        "a node that mounts another file system at the same place",
        lambda image: with_mount_words(image, "/fsx", "/oyuutbev", "/abcdefgh"),
        {"storage.mount_uniform": CONCERN},
        "/fsx source 10.1.71.197@tcp:/abcdefgh; expected 10.1.71.197@tcp:/oyuutbev as on 3 of 4 nodes",
    ),
    Fault(
        "a file system that fstab mounts for writing, and that is read-only",
        lambda image: with_tmpfs(image, "/opt/dlami/scratch", "1g,ro"),
        {"storage.mounts_writable": FAIL, "storage.mount_uniform": CONCERN},
        "/opt/dlami/scratch: tmpfs read-only; expected read-write, as in /etc/fstab",
    ),
    Fault(
        "a file system that the kernel has made read-only after an error",
        lambda image: with_mount_words(image, SCRATCH, " rw,stripe", " ro,stripe"),
        {"storage.mounts_writable": FAIL, "storage.mount_uniform": CONCERN},
        "refused by the kernel since: an error",
    ),
)
ROOM = (
    Fault(
        "a file system of the node's own that is full",
        lambda image: with_tmpfs(image, "/opt/dlami/scratch", "4m"),
        {"storage.space": FAIL},
        "/opt/dlami/scratch (tmpfs) has 100 % in use; expected less than 98 %",
        beside="fallocate -l 4M /opt/dlami/scratch/checkpoint; echo ready",
    ),
    Fault(
        "a file system of the node's own without an inode left",
        lambda image: with_tmpfs(image, "/opt/dlami/scratch", "4m,nr_inodes=3"),
        {"storage.space": FAIL},
        "/opt/dlami/scratch (tmpfs) has 100 % of its inodes in use",
        beside="cd /opt/dlami/scratch; touch a b; echo ready",
    ),
    Fault(
        "a file system of the node's own that fills up",
        lambda image: with_tmpfs(image, "/opt/dlami/scratch", "4m"),
        {"storage.space": CONCERN},
        "/opt/dlami/scratch (tmpfs) has 93 % in use; expected less than 90 % in use",
        beside="fallocate -l 3808K /opt/dlami/scratch/checkpoint; echo ready",
    ),
)
DISKS = (
    Fault(
        "a local disk that is missing",
        lambda image: without_file(image, "/sys/class/nvme/nvme5"),
        {"storage.nvme_scratch": FAIL},
        "7 local NVMe disks; expected 8",
    ),
    Fault(
        "a local disk without any space",
        lambda image: with_file(image, "/sys/class/block/nvme3n1/size", "0\n"),
        {"storage.nvme_scratch": FAIL},
        "nvme3n1 has a capacity of 0",
    ),
    Fault(
        "a local disk without its name space",
        lambda image: without_file(image, "/sys/class/nvme/nvme5/nvme5n1"),
        {"storage.nvme_scratch": FAIL},
        "no disk on nvme5",
    ),
    Fault(
        "a local disk that is in no file system",
        lambda image: without_file(image, f"/sys/class/block/nvme3n1/holders/{VOLUME}"),
        {"storage.nvme_scratch": CONCERN},
        "not mounted: nvme3n1",
    ),
    Fault(
        "an NVMe disk that is dead",
        lambda image: with_file(image, "/sys/class/nvme/nvme2/state", "dead\n"),
        {"storage.nvme_state": FAIL},
        "nvme2: Amazon EC2 NVMe Instance Storage is dead; expected live",
    ),
)
FAULTS = MOUNTED + ROOM + DISKS
