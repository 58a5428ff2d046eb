"""scontrol: the state of a node, and the only changes ever made to it, drain and resume. Never from a prolog."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusterproof.plugins.core.errors import ClusterproofError

ANSWER_S = 8.0
GOES_DOWN = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED", "POWER_DOWN", "POWERING_DOWN"})  # a resume would cancel it
UNAVAILABLE = frozenset({"DRAIN", "DOWN", "FAIL", "FAILING", "MAINTENANCE", "MAINT", "REBOOT_ISSUED", "POWERING_DOWN"})
BY_HAND = frozenset({"DRAIN", "FAIL", "FAILING"})  # end by hand alone, as a reservation or what Slurm set down need not
NOT_RESUMED = frozenset({"DOWN", "FAIL", "FAILING"}) | GOES_DOWN
# Of the environment in which slurmd was started: what would leave jobs or nodes out, or ask another cluster.
STEERING = ("SQUEUE_", "SINFO_", "SLURM_CLUSTERS")
LOCAL = {"SQUEUE_LOCAL": "1", "SINFO_LOCAL": "1"}  # of a federation this cluster alone, whatever it displays
TIMES = {"SLURM_TIME_FORMAT": "%s"}  # seconds since 1970, which no change of the clock sets back
BY_SLURM = frozenset({"Prolog error", "Epilog error"})  # all that Slurm says where a script of ours has failed
ANY_RETURNS = "2"  # of ReturnToService (slurm.conf(5)): whatever a node was set down for, it is back once it registers
ROOT = "root"  # Slurm's default of SlurmUser
NEXT_LINE = " " * 10  # how a reason's second line begins, and no key does
_WHO_AND_WHEN = re.compile(r" \[([^\[\]]*)@[^\[\]]*\]$")  # at the end of a reason's first line
_REBOOTED = re.compile(  # what Slurm adds to a reason that is there, from its first such word on
    r"(?<! : reboot issued)(?<! : reboot complete)(?<! : reboot timed out)"
    r"(?: : reboot (?:issued|complete|timed out))+$"
)


class SlurmError(ClusterproofError):
    """Slurm did not answer, or refused; the text is its own."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's state as slurmctld reports it."""

    flags: frozenset[str]  # IDLE, ALLOCATED, … and DRAIN, DOWN, …
    reason: str
    partitions: tuple[str, ...]
    stamped_reason: str = ""  # the reason with who gave it and when, which no two drains have alike
    by: str = ""  # who gave it

    @property
    def is_drained(self) -> bool:
        """Whether new jobs are kept away by a drain."""
        return "DRAIN" in self.flags

    @property
    def is_unavailable(self) -> bool:
        """Whether somebody has taken it out of use, or Slurm has."""
        return not self.flags.isdisjoint(UNAVAILABLE)

    def is_taken_back_by_hand(self, config: Callable[[], Mapping[str, str]]) -> bool:
        """Whether it stays out of use until somebody who has looked at it takes it back; down, where he set it so.

        Slurm sets a node down that does not respond, and leaves the reason that it has.
        """
        if not self.flags.isdisjoint(BY_HAND):
            return True
        if "DOWN" not in self.flags or "NOT_RESPONDING" in self.flags or not self.by:
            return False
        settings = config()
        return settings.get("ReturnToService") != ANY_RETURNS and self.by != slurm_user_of(settings)

    @property
    def goes_down(self) -> bool:
        """Whether Slurm is to reboot it or power it down, and it has not come back."""
        return not self.flags.isdisjoint(GOES_DOWN)

    @property
    def has_slurms_words(self) -> bool:
        """Whether it is drained with just the words that Slurm has for a script that failed, whoever gave them."""
        return self.is_drained and self.reason in BY_SLURM

    @property
    def may_be_resumed(self) -> bool:
        """Whether a drain is all that keeps jobs away."""
        return self.is_drained and self.flags.isdisjoint(NOT_RESUMED)


def node_state(name: str) -> NodeState:
    """What slurmctld says of a node. Raises SlurmError."""
    return parse_node(output_of("scontrol", "show", "node", name))


def parse_node(text: str) -> NodeState:
    """`scontrol show node NAME`. Raises SlurmError where that is not what the text is."""
    values: dict[str, str] = {}
    more: list[str] = []  # of the reason, below its first line
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if line.startswith(NEXT_LINE) and "Reason" in values:
            more.append(line.removeprefix(NEXT_LINE))
        elif equals:
            values.setdefault(key, value)
    if "State" not in values:
        raise SlurmError(f"scontrol show node says {text.strip()[:80]!r}; expected the node's State")
    flags = values["State"].split()[0].upper().replace("*", "+NOT_RESPONDING").split("+")
    partitions = values.get("Partitions", "").split()
    first = values.get("Reason", "")
    stamp = _WHO_AND_WHEN.search(first)
    return NodeState(
        frozenset(flags),
        _REBOOTED.sub("", "\n".join([_WHO_AND_WHEN.sub("", first), *more])),
        tuple(partitions[0].split(",")) if partitions else (),
        "\n".join([first, *more]),
        stamp[1] if stamp else "",
    )


def jobs_on(name: str) -> frozenset[str]:
    """The jobs that a node has, until slurmctld knows how their prolog and epilog ended. Raises SlurmError."""
    return frozenset(output_of("squeue", "-h", "-w", name, "-o", "%A").split())


def drain(name: str, reason: str) -> None:
    """Drain a node. Raises SlurmError."""
    output_of("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")


def resume(name: str) -> None:
    """Take a node back into use. Raises SlurmError."""
    output_of("scontrol", "update", f"NodeName={name}", "State=RESUME")


def config() -> dict[str, str]:
    """The settings of slurm.conf as slurmctld has them. Raises SlurmError."""
    return parse_config(output_of("scontrol", "show", "config"))


def parse_config(text: str) -> dict[str, str]:
    """The settings that `scontrol show config` prints; `(null)`, which means that there is none, becomes empty."""
    rows = (line.partition(" = ") for line in text.splitlines())
    settings = {name.strip(): value.strip() for name, is_setting, value in rows if is_setting}
    return {name: "" if value == "(null)" else value for name, value in settings.items()}


def slurm_user() -> str:
    """As whom slurmctld drains nodes of its own accord. Raises SlurmError."""
    return slurm_user_of(config())


def slurm_user_of(settings: Mapping[str, str]) -> str:
    """The same, by these settings."""
    return settings.get("SlurmUser", ROOT).partition("(")[0]


def output_of(*command: str) -> str:
    """What a Slurm command prints. Raises SlurmError."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=ANSWER_S, check=False, env={**own, **LOCAL, **TIMES}
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise SlurmError(f"{command[0]}: {problem}") from None
    if done.returncode:
        message = (done.stderr or done.stdout).decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SlurmError(f"{' '.join(command[:3])}: {message[:200]}")
    return done.stdout.decode("utf-8", "replace")
