"""Slurm's own word on a node, and the two things that are ever done to it: drain and resume. Never from a prolog."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from clusterproof.integrations.slurm.verdict import PREFIX

ANSWER_S = 8.0
UNAVAILABLE = frozenset({"DRAIN", "DOWN", "FAIL", "FAILING", "MAINTENANCE", "MAINT", "REBOOT", "POWERING_DOWN"})
BY_SLURM = ("Prolog error", "Epilog error")  # what Slurm itself says where a script of ours has failed
_WHO_AND_WHEN = re.compile(r" \[[^\[\]]*@[^\[\]]*\]$")


class SlurmError(Exception):
    """Slurm did not answer, or refused; the text is its own."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as slurmctld has it."""

    flags: frozenset[str]  # IDLE, ALLOCATED, … and DRAIN, DOWN, …
    reason: str
    partitions: tuple[str, ...]

    @property
    def is_drained(self) -> bool:
        """Whether new jobs are kept away by a drain."""
        return "DRAIN" in self.flags

    @property
    def is_unavailable(self) -> bool:
        """Whether somebody has taken it out of use, or Slurm has."""
        return not self.flags.isdisjoint(UNAVAILABLE)

    @property
    def is_unexplained(self) -> bool:
        """Whether Slurm drained it for a script that failed, and says no more than that."""
        return self.is_drained and self.reason.startswith(BY_SLURM)


def node_state(name: str) -> NodeState:
    """What slurmctld says of a node. Raises SlurmError."""
    return parse_node(_told("scontrol", "show", "node", name))


def parse_node(text: str) -> NodeState:
    """`scontrol show node NAME`. Raises SlurmError where that is not what the text is."""
    values = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals:
            values[key] = value
    if "State" not in values:
        raise SlurmError(f"scontrol show node says {text.strip()[:80]!r}; expected the node's State")
    flags = values["State"].split()[0].upper().replace("*", "").split("+")
    partitions = values.get("Partitions", "").split()
    return NodeState(
        frozenset(flags),
        _WHO_AND_WHEN.sub("", values.get("Reason", "")),
        tuple(partitions[0].split(",")) if partitions else (),
    )


def drain(name: str, reason: str) -> None:
    """Drain a node. Raises SlurmError."""
    _told("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")


def resume(name: str) -> None:
    """Take a node back into use. Raises SlurmError."""
    _told("scontrol", "update", f"NodeName={name}", "State=RESUME")


def limit_reached(partitions: Iterable[str], percent: int, nodes: int) -> str:
    """Which partition has as many of its nodes drained by us as is allowed, in words; else empty. Raises SlurmError."""
    for partition in partitions:
        count, total = count_drained(_told("sinfo", "-h", "-N", "-p", partition, "-o", "%N|%E"))
        if count >= allowed(total, percent, nodes):
            return f"{count} of {total} nodes of partition {partition} are already drained by clusterproof"
    return ""


def count_drained(listing: str) -> tuple[int, int]:
    """How many nodes of `sinfo -N -o "%N|%E"` have a reason of ours, and how many there are."""
    reasons = dict(line.split("|", 1) for line in listing.splitlines() if "|" in line)
    return sum(reason.startswith(PREFIX) for reason in reasons.values()), len(reasons)


def allowed(total: int, percent: int, nodes: int) -> int:
    """How many nodes of a partition we may drain: the share or the number, the less of both; one in any case."""
    return max(1, min(nodes, total * percent // 100))


def _told(*command: str) -> str:
    """What a command of Slurm's prints. Raises SlurmError."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise SlurmError(f"{command[0]}: {problem}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).decode("utf-8", "replace").strip()
        raise SlurmError(f"{' '.join(command[:3])}: {said[:200]}")
    return done.stdout.decode("utf-8", "replace")
