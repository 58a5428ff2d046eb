"""The owner and program of a process: its own name for itself is not reliable."""

from __future__ import annotations

import os
import re

from clusterproof.plugins.agent.process_group import stat_fields
from clusterproof.plugins.agent.reading import Node

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from typing import Any

SLURM = ("/etc/slurm", "/opt/slurm/etc", "/run/slurm/conf", "/var/spool/slurmd/conf-cache")  # that have slurm.conf
USERS = re.compile(r"(?im)^[^\S\n]*Slurmd?User[^\S\n]*=[^\S\n]*([\w.-]+)")
ROOT = 0
OF_THE_HOST = re.compile(
    r"^Uid:\t0\t.*^NSpid:\t\d+$", re.MULTILINE | re.DOTALL
)  # /proc/PID/status of root's, in no container
CGROUP = "/sys/fs/cgroup"


def owner(node: Node, pid: str | int) -> int:
    """The user that a process runs as. Raises OSError."""
    return os.stat(node.path(f"/proc/{pid}")).st_uid


def program(node: Node, pid: str | int) -> str:
    """The file name of the program that a process runs; empty where only root may know."""
    return node.linked(f"/proc/{pid}/exe").partition(" (deleted)")[0]


def parent(node: Node, pid: str | int) -> str:
    """The number of the parent process; 0 if it has ended."""
    stat = node.text(f"/proc/{pid}/stat", absent="")
    fields = stat_fields(stat) if isinstance(stat, str) else []
    return fields[3] if len(fields) > 3 else "0"


def is_daemon(node: Node, pid: str | int, name: str, users: frozenset[int]) -> bool:
    """Whether one of these users runs this program, or one that Debian calls `NAME-wlm`. Raises OSError.

    Only the kernel's information on the program counts: raises PermissionError if only root may read it, because a user
    can start a program of root's under any name.
    """
    if owner(node, pid) not in users:
        return False
    runs = os.path.basename(os.readlink(f"{node.root}/proc/{pid}/exe")).partition(" (deleted)")[0]
    return runs in (name, f"{name}-wlm")


def daemon_users(node: Node, further: Collection[str] = ()) -> frozenset[int]:
    """Root, and the users of Slurm's daemons in slurm.conf, or named, according to the node's own /etc/passwd."""
    named = {user for text in slurm_confs(node).values() for user in USERS.findall(text)} | {*further}
    accounts = (line.split(":") for line in str(node.text("/etc/passwd", absent="")).splitlines())
    return frozenset([ROOT, *(int(a[2]) for a in accounts if len(a) > 3 and a[2].isdecimal() and named & {a[0], a[2]})])


def slurm_confs(node: Node) -> dict[str, str]:
    """Each readable slurm.conf of a node, by path."""
    texts = {path: node.text(path, absent="") for path in (f"{folder}/slurm.conf" for folder in SLURM)}
    return {path: text for path, text in texts.items() if isinstance(text, str) and text}


def daemons(node: Node, names: Collection[str], further: Collection[str] = ()) -> dict[str, str | OSError]:
    """The first running process of each of these daemons, by name; or why it is unknown.

    They must run as root, as one of Slurm's users, or as one of `further`.
    """
    users = daemon_users(node, further) | {os.stat(node.path("/proc")).st_uid}  # root, as this process sees it
    pids: dict[str, str | OSError] = {}
    for pid in node.pids():
        name = ""
        try:
            name = node.read(f"/proc/{pid}/comm").strip()
            if name in names and not isinstance(pids.get(name), str) and is_daemon(node, pid, name, users):
                pids[name] = pid
        except PermissionError as problem:
            pids.update({name: problem} if name in names and name not in pids else {})
        except OSError:
            continue  # it ended meanwhile
    return pids


def control_groups(node: Node, pid: str, controller: str) -> Iterator[tuple[bool, str]]:
    """A process's control group for that controller, then those above; whether it is version 1's.

    Raises OSError.
    """
    for line in node.read(f"/proc/{pid}/cgroup").splitlines():
        number, kinds, group = (*line.split(":", 2), "", "")[:3]
        is_first = number != "0"
        if is_first and controller not in kinds.split(","):
            continue
        top = f"{CGROUP}/{controller}" if is_first else CGROUP
        while group:
            yield is_first, top + group.rstrip("/")
            group = group.rstrip("/").rpartition("/")[0]


def in_turn(rows: list[dict[str, Any]], owner_key: str, most: int) -> list[dict[str, Any]]:
    """At most so many of these, taking turns between owners, so that nobody's many hide another's few."""
    count: dict[object, int] = {}
    turns = []
    for row in rows:
        turns.append(count.get(row[owner_key], 0))
        count[row[owner_key]] = turns[-1] + 1
    return [rows[index] for index in sorted(range(len(rows)), key=turns.__getitem__)[:most]]
