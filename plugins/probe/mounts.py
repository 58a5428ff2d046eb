"""Mounted file systems, each touched in a process of its own: /proc/self/mountinfo, /etc/fstab."""

from __future__ import annotations

import re
from collections.abc import Collection

from clusterproof.plugins.probe.reading import Node, error
from clusterproof.plugins.probe.touch import touch_all

PSEUDO = re.compile(
    "autofs|bdev|binder|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|efivarfs|fuse.lxcfs|fuse.portal"
    "|fuse.gvfsd-fuse|fusectl|hugetlbfs|iso9660|mqueue|nfsd|nsfs|overlay|proc|pstore|ramfs|resctrl|rootfs"
    "|rpc_pipefs|securityfs|selinuxfs|squashfs|swap|sysfs|tracefs"
)
NETWORK = re.compile(r"lustre|nfs|cifs|smb|ceph|gpfs|beegfs|weka|glusterfs|9p|virtiofs|fuse|afs")
OF_OTHERS = re.compile(
    r"/(var/lib/(docker|containerd|containers|kubelet|enroot)|run/(containerd|docker|user|credentials|netns)"
    r"|snap|proc|sys)/"
)
ALWAYS = ("/", "/dev/shm")
ESCAPED = re.compile(r"\\([0-7]{3})")
MAX_MOUNTS = 64
MAX_FSTAB = 256


def read(node: Node) -> object:
    """What is mounted and answers, and what /etc/fstab says should be."""
    found = mounted(node)
    mounts = {mount["path"]: mount for mount in found}  # of several on one path, the last is seen
    wanted = _wanted(list(mounts.values()))
    node.at("touching " + " ".join(mount["path"] for mount in wanted))
    touched = touch_all(node, [(mount["path"], mount.pop("device")) for mount in wanted])
    return {
        "mounts": [{**mount, **touch} for mount, touch in zip(wanted, touched)],
        "fstab": _fstab(node, mounts),
        "passed_over": len(found) - len(wanted),
    }


def mounted(node: Node) -> list[dict[str, str]]:
    """Every mount of the node, in order. Raises OSError."""
    mountinfo = node.read("/proc/1/mountinfo" if node.root else "/proc/self/mountinfo")
    return [mount for mount in map(_mount, mountinfo.splitlines()) if mount]


def _mount(line: str) -> dict[str, str]:
    """One line of mountinfo, nothing where it has not its form."""
    left, separated, right = line.partition(" - ")
    fields, more = left.split(" "), right.split(" ")
    if not separated or len(fields) < 6 or len(more) < 3:
        return {}
    options = dict.fromkeys([*fields[5].split(","), *more[2].split(",")])
    return {
        "path": _unescaped(fields[4]),
        "type": more[0],
        "source": _unescaped(more[1]),
        "options": ",".join(options),
        "device": fields[2],
    }


def _wanted(mounts: list[dict[str, str]]) -> list[dict[str, str]]:
    """The mounts that are told, the most important first: local devices once, network file systems always."""
    devices: set[str] = set()
    wanted = []
    for mount in sorted(mounts, key=_rank):
        is_local = _rank(mount) == len(ALWAYS) + 1
        is_told_already = mount["device"] in devices
        devices.add(mount["device"])
        if mount["path"] in ALWAYS or not (_is_passed_over(mount) or (is_local and is_told_already)):
            wanted.append(mount)
    return wanted[:MAX_MOUNTS]


def _rank(mount: dict[str, str]) -> int:
    if mount["path"] in ALWAYS:
        return ALWAYS.index(mount["path"])
    return len(ALWAYS) if NETWORK.match(mount["type"]) else len(ALWAYS) + 1


def _is_passed_over(mount: dict[str, str]) -> bool:
    return bool(PSEUDO.fullmatch(mount["type"]) or OF_OTHERS.match(mount["path"] + "/"))


def _fstab(node: Node, mounts: Collection[str]) -> object:
    """The entries of /etc/fstab, each with whether anything is mounted there; none where there is no such file."""
    try:
        lines = node.read("/etc/fstab").splitlines()
    except FileNotFoundError:
        return []
    except OSError as problem:
        return error(problem)
    entries = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return [
        {
            "path": _folder(entry[1]),
            "type": entry[2],
            "source": _unescaped(entry[0]),
            "options": entry[3] if len(entry) > 3 else "defaults",
            "mounted": _folder(entry[1]) in mounts,
        }
        for entry in entries[:MAX_FSTAB]
        if len(entry) >= 3 and entry[1].startswith("/") and not PSEUDO.fullmatch(entry[2])
    ]


def _folder(text: str) -> str:
    """A path as mountinfo writes it: without a last slash."""
    return _unescaped(text).rstrip("/") or "/"


def _unescaped(text: str) -> str:
    return ESCAPED.sub(lambda code: chr(int(code[1], 8)), text)
