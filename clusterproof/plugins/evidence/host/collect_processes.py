"""Processes in uninterruptible sleep, and zombies: two passes over /proc."""

from __future__ import annotations

import os
import time

from clusterproof.plugins.agent.process_group import functions, stat_fields
from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.host.collect_owner import in_turn, owner

TYPE_CHECKING = False  # importing typing itself takes time on every node
if TYPE_CHECKING:
    from typing import Any

BETWEEN_LOOKS_S = 0.25
MAX_BLOCKED = 64
STATE, PARENT, SESSION, START, PROCESSOR = 2, 3, 5, 21, 38  # fields of /proc/PID/stat
LAST_RAN = "se.exec_start"


def read(node: Node) -> object:
    """The number of processes and zombies, and those blocked (D) in both passes."""
    looked = (stat_of(node, pid) for pid in node.pids())
    first = _not_ours(node, [fields for fields in looked if fields])
    suspects = [fields for fields in first if fields[STATE] == "D"]
    if suspects:
        node.at(f"{len(suspects)} processes in state D again")
        time.sleep(BETWEEN_LOOKS_S)
    uptime_s = float(node.read("/proc/uptime").split()[0])
    blocked: list[dict[str, Any]] = sorted(
        (
            {"fields": fields, "uid": _user(node, fields[0]), "wait": wait_of(node, fields[0])}
            for fields in suspects
            if _is_same_and_blocked(fields, stat_of(node, fields[0]))
        ),
        key=lambda row: int(row["fields"][START]),  # of many of a kind those that may have waited longest
    )
    with_kind = [{**row, "kind": (row["uid"], row["wait"])} for row in blocked]
    shown = in_turn(with_kind, "kind", MAX_BLOCKED)
    kinds = {row["kind"] for row in shown}
    return {
        "total": len(first),
        "zombies": sum(fields[STATE] == "Z" for fields in first),
        "blocked": [_blocked(node, uptime_s, row["fields"], row["uid"], row["wait"]) for row in shown],
        "blocked_alike": sum(row["kind"] in kinds for row in with_kind) - len(shown),
        "blocked_left_out": sum(row["kind"] not in kinds for row in with_kind),
    }


def stat_of(node: Node, pid: str) -> list[str]:
    """The fields of a process, none where it has ended meanwhile."""
    try:
        fields = stat_fields(node.read(f"/proc/{pid}/stat"))
    except OSError:
        return []
    return fields if len(fields) > PROCESSOR else []


def _not_ours(node: Node, processes: list[list[str]]) -> list[list[str]]:
    """Without the probe's own collectors and their children: each collector has its own session."""
    own = stat_of(node, "self")  # with the numbers that this /proc gives us; none where it does not see us
    collectors = {fields[0] for fields in processes if own and fields[PARENT] == own[PARENT]}
    return [fields for fields in processes if fields[SESSION] not in collectors]


def _is_same_and_blocked(first: list[str], second: list[str]) -> bool:
    return bool(second) and second[STATE] == "D" and second[START] == first[START]


def _user(node: Node, pid: str) -> int | None:
    try:
        return owner(node, pid)
    except OSError:
        return None  # it has ended meanwhile


def wait_of(node: Node, pid: str) -> str:
    """The kernel function that a process waits in; empty if unknown."""
    wait = node.text(f"/proc/{pid}/wchan", absent="")
    return wait if isinstance(wait, str) and wait != "0" else ""


def _blocked(node: Node, uptime_s: float, fields: list[str], uid: int | None, wait: str) -> dict[str, object]:
    pid = fields[0]
    node.at(f"process {pid} ({fields[1]})")
    return {
        "pid": int(pid),
        "name": fields[1],
        "uid": uid,
        "wait": wait,
        "stack": functions("", str(node.text(f"/proc/{pid}/stack", absent=""))),
        "blocked_s": _blocked_s(node, pid, int(fields[PROCESSOR])),
        "age_s": round(uptime_s - int(fields[START]) / os.sysconf("SC_CLK_TCK"), 2),
    }


def _blocked_s(node: Node, pid: str, processor: int) -> float | None:
    """How long ago a process last ran, if the kernel reports it.

    The kernel's clock for that differs between CPUs because of interrupts and the hypervisor: so this process moves
    to the CPU where the other last ran, and compares with itself.
    """
    try:
        os.sched_setaffinity(0, [processor])
        then, now = _last_ran_ms(node, f"/proc/{pid}/sched"), _last_ran_ms(Node(), "/proc/self/sched")
    except (OSError, ValueError):
        return None
    return round(max(0.0, (now - then) / 1000), 2) if then > 0 else None


def _last_ran_ms(node: Node, path: str) -> float:
    """Raises OSError, ValueError."""
    text = node.read(path)
    return float(text[text.index(LAST_RAN) :].split(":", 1)[1].split()[0])
