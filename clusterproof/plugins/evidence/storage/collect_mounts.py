"""Mounted file systems, each accessed in its own process: /proc/self/mountinfo, /etc/fstab."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.agent.reading import Node, error
from clusterproof.plugins.evidence.storage.collect_touch import UNKNOWN, touch_all

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

PSEUDO = Pattern(
    "autofs|bdev|binder|binfmt_misc|bpf|cgroup2?|configfs|debugfs|devpts|devtmpfs|efivarfs|fuse.lxcfs|fuse.portal"
    "|fuse.gvfsd-fuse|fusectl|hugetlbfs|iso9660|mqueue|nfsd|nsfs|overlay|proc|pstore|ramfs|resctrl|rootfs"
    "|rpc_pipefs|securityfs|selinuxfs|squashfs|swap|sysfs|tracefs"
)
NETWORK = Pattern(r"lustre|nfs|cifs|smb|ceph|gpfs|beegfs|weka|glusterfs|9p|virtiofs|fuse|afs")  # and longer types
OF_OTHERS = Pattern(  # also of containers whose runtime keeps them elsewhere; and where udisks mounts users' disks
    r"/(var/lib/(docker|containerd|containers|kubelet|enroot|juicefs)|runtime-mnt|run/(containerd|docker|user|credentials|netns)"
    r"|snap|proc|sys|(run/)?media|(.*/)?(kubelet/(pods|plugins)|[0-9a-f]{64}))/"
)
OF_USERS = Pattern(r"(.*,)?user_id=[1-9].*")  # options of a FUSE mount that a user made
ALWAYS = ("/", "/dev/shm")
UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
WHERE = Pattern(r"(?m)^[^\S\n]*Where[^\S\n]*=[^\S\n]*(/\S*)")
ESCAPED = Pattern(r"\\([0-7]{3})")
MAX_MOUNTS = 256
MAX_LINKS = 40  # as Linux follows
MAX_FSTAB = 4096
COVERED = {"alive": "covered", **UNKNOWN}


def read(node: Node) -> object:
    """Which file systems are mounted and answer, and which /etc/fstab lists."""
    return look(node, {})


def look(node: Node, known: Mapping[str, dict[str, object]]) -> dict[str, Any]:
    """As `read`, but mounts in `known` keep the answer given there and are not accessed again."""
    table = mounted(node)
    users = [mount for mount in table if OF_USERS.fullmatch(mount["options"])]
    own = {mount["path"]: mount for mount in table if mount not in users}  # on one path, the last mount is visible
    autofs = {mount["path"] for mount in table if mount["type"] == "autofs"}
    fstab = _fstab(node, own, [mount["path"] for mount in users])
    due = {str(entry["path"]) for entry in fstab} if isinstance(fstab, list) else set()
    due.update(_of_units(node), node.mounts)
    every = _wanted(list(own.values()), due, autofs)
    wanted, others = every[:MAX_MOUNTS], every[MAX_MOUNTS:]
    covered = {mount["path"] for mount in wanted if _is_covered(mount, table, users)}
    open_ = [
        (mount["path"], "" if mount["type"] == "btrfs" else mount["device"])  # each subvolume has another number
        for mount in wanted
        if mount["path"] not in covered and mount["path"] not in known
    ]
    node.at("touching " + " ".join(path for path, _ in open_))
    touched = {path: touch for path, touch in known.items() if path not in covered}
    touched.update((path, touch) for (path, _), touch in zip(open_, touch_all(node, open_)))
    return {
        "mounts": [
            {
                **{key: value for key, value in mount.items() if key != "device"},
                **touched.get(mount["path"], COVERED),
                "is_due": mount["path"] in due,
                "is_automatic": _is_automatic(mount, autofs),
            }
            for mount in wanted
        ],
        "fstab": fstab,
        "passed_over": len(table) - len(wanted),
        "left_out": sum(not _is_automatic(mount, autofs) for mount in others),
    }


def mounted(node: Node) -> list[dict[str, str]]:
    """Every mount of the node, in order. Raises OSError."""
    mountinfo = node.read("/proc/1/mountinfo" if node.root else "/proc/self/mountinfo")
    return [mount for mount in map(_mount, mountinfo.splitlines()) if mount]


def unmounted(node: Node, folder: str) -> list[str]:
    """The names in a folder, without those on which a file system is mounted. Raises OSError."""
    try:
        taken = {mount["path"] for mount in mounted(node)}
    except FileNotFoundError:
        taken = set()  # a root directory without /proc
    return [name for name in node.names(folder) if f"{folder}/{name}" not in taken]


def _mount(line: str) -> dict[str, str]:
    """A line of mountinfo; empty if it is malformed."""
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


def _is_automatic(mount: dict[str, str], autofs: Collection[str]) -> bool:
    """Whether autofs mounted it, at one of these or below, when somebody accessed it: users decide which there are."""
    return any(f"{mount['path']}/".startswith(f"{path.rstrip('/')}/") for path in autofs)


def _is_covered(mount: dict[str, str], table: list[dict[str, str]], users: list[dict[str, str]]) -> bool:
    """Whether the path of a mount leads through a user's own mount, which would then answer in its place."""
    path, position = mount["path"], table.index(mount)
    above = any(path.startswith(f"{other['path']}/") for other in users)
    return above or any(other["path"] == path and table.index(other) > position for other in users)


def _of_units(node: Node) -> list[str]:
    """The mount points of systemd's units."""
    files = (f"{folder}/{name}" for folder in UNITS for name in node.names(folder))
    texts = [node.text(file, absent="") for file in files if file.endswith((".mount", ".automount"))]
    return [_folder(path) for text in texts if isinstance(text, str) for path in WHERE.findall(text)[-1:]]


def _wanted(mounts: list[dict[str, str]], due: Collection[str], autofs: Collection[str]) -> list[dict[str, str]]:
    """The mounts to report, expected ones first: local devices once, network file systems always."""
    devices: set[str] = set()
    wanted = []
    for mount in sorted(mounts, key=_rank):
        is_local = _rank(mount) == len(ALWAYS) + 1
        is_known = mount["device"] in devices
        devices.add(mount["device"])
        is_passed_over = _is_passed_over(mount, due) or (is_local and is_known)
        if mount["path"] in ALWAYS or not is_passed_over:
            wanted.append(mount)
    return sorted(wanted, key=lambda mount: (mount["path"] not in (*ALWAYS, *due), _is_automatic(mount, autofs)))


def _rank(mount: dict[str, str]) -> int:
    if mount["path"] in ALWAYS:
        return ALWAYS.index(mount["path"])
    return len(ALWAYS) if NETWORK.match(mount["type"]) else len(ALWAYS) + 1


def _is_passed_over(mount: dict[str, str], due: Collection[str]) -> bool:
    path = mount["path"]
    return bool(PSEUDO.fullmatch(mount["type"]) or (path not in due and OF_OTHERS.match(path)))


def _fstab(node: Node, own: Collection[str], users: Collection[str]) -> object:
    """The entries of /etc/fstab, and whether each is mounted; empty if there is no such file.

    A user's mount at that path only counts if the entry is of type FUSE too.
    """
    try:
        lines = node.read("/etc/fstab").splitlines()
    except FileNotFoundError:
        return []
    except OSError as problem:
        return error(problem)
    entries = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(entries) > MAX_FSTAB:
        return {"error": "E2BIG", "text": f"/etc/fstab: {len(entries)} entries; expected at most {MAX_FSTAB}"}
    return [
        {
            "path": folder,
            "type": entry[2],
            "source": _unescaped(entry[0]),
            "options": entry[3] if len(entry) > 3 else "defaults",
            "mounted": folder in own or (entry[2].startswith("fuse") and folder in users),
        }
        for entry in entries
        if len(entry) >= 3 and entry[1].startswith("/") and not PSEUDO.fullmatch(entry[2])
        for folder in (_mounted_at(node, _folder(entry[1]), {*own, *users}),)
    ]


def _mounted_at(node: Node, path: str, mounts: Collection[str], left: int = MAX_LINKS) -> str:
    """Where a file system with this path is mounted: mount(8) follows links. The path itself if it is not mounted.

    No link on a mounted file system is followed, as it may hang.
    """
    at = ""
    for word in path.split("/")[1:] if left else ():
        at += f"/{word}"
        if at in mounts:
            break
        try:
            target = os.path.join(at, "..", os.readlink(node.root + at))
        except OSError:
            continue
        there = _mounted_at(node, os.path.normpath(target + path[len(at) :]), mounts, left - 1)
        return there if there in mounts else path
    return path


def _folder(text: str) -> str:
    """A path as mountinfo writes it: without a trailing slash."""
    return _unescaped(text).rstrip("/") or "/"


def _unescaped(text: str) -> str:
    return ESCAPED.sub(lambda code: chr(int(code[1], 8)), text)
