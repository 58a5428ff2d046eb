"""Whose a process is, and which program it runs: what it calls itself is anybody's to choose."""

from __future__ import annotations

import os
import re

from clusterproof.plugins.agent.process_group import stat_fields
from clusterproof.plugins.agent.reading import Node

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    from typing import Any

SLURM = ("/etc/slurm", "/opt/slurm/etc", "/run/slurm/conf", "/var/spool/slurmd/conf-cache")  # that have slurm.conf
USERS = re.compile(r"(?im)^\s*Slurmd?User\s*=\s*([\w.-]+)")
ROOT = 0


def owner(node: Node, pid: str | int) -> int:
    """The user that a process runs as. Raises OSError."""
    return os.stat(node.path(f"/proc/{pid}")).st_uid


def program(node: Node, pid: str | int) -> str:
    """The file name of the program that a process runs; empty where only root may know."""
    return node.linked(f"/proc/{pid}/exe").partition(" (deleted)")[0]


def parent(node: Node, pid: str | int) -> str:
    """The number of the process that has started it, or has inherited it; 0 where it has ended."""
    stat = node.text(f"/proc/{pid}/stat", absent="")
    fields = stat_fields(stat) if isinstance(stat, str) else []
    return fields[3] if len(fields) > 3 else "0"


def is_daemon(node: Node, pid: str | int, name: str, users: frozenset[int]) -> bool:
    """Whether one of these users runs this program, or one that Debian calls `NAME-wlm`. Raises OSError.

    Where only root may know the program, the user alone is believed.
    """
    return owner(node, pid) in users and (program(node, pid) or name) in (name, f"{name}-wlm")


def daemon_users(node: Node) -> frozenset[int]:
    """Root, and the users that slurm.conf gives Slurm's daemons, by the node's own /etc/passwd."""
    texts = [node.text(f"{folder}/slurm.conf", absent="") for folder in SLURM]
    named = {user for text in texts if isinstance(text, str) for user in USERS.findall(text)}
    accounts = (line.split(":") for line in str(node.text("/etc/passwd", absent="")).splitlines())
    return frozenset([ROOT, *(int(a[2]) for a in accounts if len(a) > 3 and a[2].isdigit() and named & {a[0], a[2]})])


def in_turn(data: list[dict[str, Any]], whose: str, most: int) -> list[dict[str, Any]]:
    """At most so many of these, of each owner one after the other: nobody's many hide another's few."""
    count: dict[object, int] = {}
    turns = []
    for one in data:
        turns.append(count.get(one[whose], 0))
        count[one[whose]] = turns[-1] + 1
    return [data[place] for place in sorted(range(len(data)), key=turns.__getitem__)[:most]]
