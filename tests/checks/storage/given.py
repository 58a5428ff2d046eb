"""A node's mounts, and a check's result on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from tests.builders.evaluated import result_of
from tests.builders.recordings import boot, node

EC2 = {"vendor": "Amazon EC2", "product": "p5.48xlarge", "serial": ""}


def mount(path: str = "/data", kind: str = "ext4", source: str = "/dev/sdb", options: str = "rw", **values: Any) -> Any:
    """A mounted file system that answers."""
    sizes = {"total_kib": 100, "free_kib": 90, "inodes": 100, "inodes_free": 90}
    return {"path": path, "type": kind, "source": source, "options": options, "alive": "yes", **sizes, **values}


LUSTRE = mount("/fsx", "lustre", "10.0.0.1@tcp:/fsx", "rw,noatime,flock")
NFS = mount("/home", "nfs4", "fs-1.fsx.us-west-2.amazonaws.com:/home", "rw,hard,nconnect=16")


def evaluated(
    check: str,
    *mounts: Mapping[str, Any],
    fstab: Any = (),
    policy: Policy = NO_POLICY,
    occasion: str = "preflight",
    alike: int = 0,
    **collectors: Any,
) -> Result:
    """A check's result on a node with these mounts and this /etc/fstab; `alike` others of its group are like it."""
    report = {"mounts": list(mounts), "fstab": list(fstab) if isinstance(fstab, tuple) else fstab}
    collected = {"boot": boot(), "platform": EC2, "mounts": report} | collectors
    evidence, *peers = (node(f"gpu{number:03}", **collected) for number in range(1, alike + 2))
    return result_of(f"storage.{check}", evidence, *peers, occasion=occasion, policy=policy)
