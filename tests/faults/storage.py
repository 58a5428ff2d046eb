"""File systems."""

from __future__ import annotations

from clusterproof.plugins.policy.model import Policy
from tests.faults.fault import FAIL, Fault
from tests.testbed.needs import needs_hung_mount
from tests.testbed.node import with_hung_mount, with_line

LUSTRE = "10.0.0.9@tcp:/abcdefgh /fsx lustre defaults,noatime,flock,_netdev 0 0"

FAULTS = (
    Fault(
        "a file server that does not answer",
        lambda image: with_hung_mount(image, "/fsx"),
        {"storage.mounts_alive": FAIL},
        "/fsx: fuse.sshfs",
        marks=(needs_hung_mount,),
    ),
    Fault(
        "a file system of fstab that is not mounted",
        lambda image: with_line(image, "/etc/fstab", LUSTRE),
        {"storage.mounts_expected": FAIL},
        "/fsx (lustre, in /etc/fstab)",
    ),
    Fault(
        "a file system that the site expects and the node lacks",
        lambda image: image,
        {"storage.mounts_expected": FAIL},
        "/checkpoints (expected by the policy)",
        policy=Policy(mounts=("/checkpoints", "/dev/shm")),
    ),
)
