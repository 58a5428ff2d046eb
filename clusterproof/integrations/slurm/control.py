"""Queries Slurm about a node, and drains and resumes it, the only changes ever made. Never from a prolog."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterproof.integrations.slurm.roots import distrust
from clusterproof.plugins.core.errors import ClusterproofError

ANSWER_S = 8.0
GOES_DOWN = frozenset(  # a resume would cancel it; REBOOT is of Slurm 20.11
    {"REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT", "POWER_DOWN", "POWERING_DOWN"}
)
UNAVAILABLE = frozenset({"DRAIN", "DOWN", "FAIL", "FAILING", "MAINTENANCE", "MAINT", "REBOOT_ISSUED", "POWERING_DOWN"})
BY_HAND = frozenset({"DRAIN", "FAIL", "FAILING"})  # only ended by hand, unlike a reservation or a state set by Slurm
NOT_RESUMED = frozenset({"DOWN", "FAIL", "FAILING"}) | GOES_DOWN
# Environment variables of slurmd that would hide jobs or nodes, or select another cluster.
STEERING = ("SQUEUE_", "SINFO_", "SLURM_CLUSTERS")
CONF = "SLURM_CONF"
LOCAL = {"SQUEUE_LOCAL": "1", "SINFO_LOCAL": "1"}  # only this cluster of a federation
TIMES = {"SLURM_TIME_FORMAT": "%s"}  # seconds since 1970, unaffected by time zones
# Slurm 20.11 marks a state where later versions add a word.
MARKS = str.maketrans({"*": "+NOT_RESPONDING", "@": "+REBOOT_REQUESTED", "$": "+MAINTENANCE"})
BY_SLURM = frozenset({"Prolog error", "Epilog error"})  # Slurm's only reasons for a failed script of ours
ANY_RETURNS = "2"  # of ReturnToService (slurm.conf(5)): a down node returns once it registers, whatever the reason
ROOT = "root"  # Slurm's default of SlurmUser
NEXT_LINE = " " * 10  # how a reason's second line begins, unlike any key
_SLURMD = re.compile(r"/slurmd(-wlm)?$")  # Debian's file has the longer name
_CONF_OPTION = re.compile(r"-[bcCDGMsv]*f(.*)")  # of slurmd, alone or behind others without a value
_WHO_AND_WHEN = re.compile(r" \[([^\[\]]*)@[^\[\]]*\]$")  # at the end of a reason's first line
_REBOOTED = re.compile(  # text that Slurm appends to a reason, from its first such word on
    r"(?<! : reboot issued)(?<! : reboot complete)(?<! : reboot timed out)"
    r"(?: : reboot (?:issued|complete|timed out))+$"
)


class SlurmError(ClusterproofError):
    """Slurm did not answer, or refused; the text is Slurm's."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's state in slurmctld."""

    flags: frozenset[str]  # IDLE, ALLOCATED, … and DRAIN, DOWN, …
    reason: str
    partitions: tuple[str, ...]
    stamped_reason: str = ""  # the reason with author and time, unique to a drain
    by: str = ""  # the reason's author

    @property
    def is_drained(self) -> bool:
        """Whether a drain keeps new jobs away."""
        return "DRAIN" in self.flags

    @property
    def is_unavailable(self) -> bool:
        """Whether an administrator, or Slurm, has taken it out of use."""
        return not self.flags.isdisjoint(UNAVAILABLE)

    def is_taken_back_by_hand(self, config: Callable[[], Mapping[str, str]]) -> bool:
        """Whether it stays out of use until an administrator returns it; down, if an administrator set that.

        Slurm sets an unresponsive node down, and keeps its earlier reason.
        """
        if not self.flags.isdisjoint(BY_HAND):
            return True
        if "DOWN" not in self.flags or "NOT_RESPONDING" in self.flags or not self.by:
            return False
        settings = config()
        return settings.get("ReturnToService") != ANY_RETURNS and self.by != slurm_user_of(settings)

    @property
    def goes_down(self) -> bool:
        """Whether Slurm is going to reboot it or power it down, and it has not returned yet."""
        return not self.flags.isdisjoint(GOES_DOWN)

    @property
    def has_slurms_reason(self) -> bool:
        """Whether its drain has exactly Slurm's own reason for a failed script, whoever set it."""
        return self.is_drained and self.reason in BY_SLURM

    @property
    def may_be_resumed(self) -> bool:
        """Whether a drain is the only thing that keeps jobs away."""
        return self.is_drained and self.flags.isdisjoint(NOT_RESUMED)


def node_state(name: str) -> NodeState:
    """The node's state in slurmctld. Raises SlurmError."""
    return parse_node(output_of("scontrol", "show", "node", name))


def parse_node(text: str) -> NodeState:
    """Parse `scontrol show node NAME`. Raises SlurmError for any other text."""
    values: dict[str, str] = {}
    more: list[str] = []  # of the reason, after its first line
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if line.startswith(NEXT_LINE) and "Reason" in values:
            more.append(line.removeprefix(NEXT_LINE))
        elif equals:
            values.setdefault(key, value)
    if "State" not in values:
        raise SlurmError(f"scontrol show node says {text.strip()[:80]!r}; expected the node's State")
    flags = values["State"].split()[0].upper().translate(MARKS).split("+")
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
    """The jobs that a node still has for slurmctld, including prolog and epilog. Raises SlurmError."""
    return frozenset(output_of("squeue", "-h", "-w", name, "-o", "%A").split())


def drain(name: str, reason: str) -> None:
    """Drain a node. Raises SlurmError."""
    output_of("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")


def resume(name: str) -> None:
    """Resume a node. Raises SlurmError."""
    output_of("scontrol", "update", f"NodeName={name}", "State=RESUME")


def config() -> dict[str, str]:
    """The slurm.conf settings in slurmctld. Raises SlurmError."""
    return parse_config(output_of("scontrol", "show", "config"))


def parse_config(text: str) -> dict[str, str]:
    """Parse `scontrol show config`; `(null)` becomes empty."""
    rows = (line.partition(" = ") for line in text.splitlines())
    settings = {name.strip(): value.strip() for name, is_setting, value in rows if is_setting}
    return {name: "" if value == "(null)" else value for name, value in settings.items()}


def slurm_user() -> str:
    """The user as whom slurmctld itself drains nodes. Raises SlurmError."""
    return slurm_user_of(config())


def slurm_user_of(settings: Mapping[str, str]) -> str:
    """The same, from these settings."""
    return settings.get("SlurmUser", ROOT).partition("(")[0]


def slurm_conf() -> str:
    """The slurm.conf to go by, empty for the default: slurmd names its own to a prolog and an epilog alone."""
    named = itertools.chain([os.environ.get(CONF, "")], named_to_slurmd())
    return next((file for file in named if os.path.isfile(file)), "")  # noqa: PTH113 - a Path of nothing is a folder


def named_to_slurmd(processes: Path = Path("/proc")) -> Iterator[str]:
    """The slurm.conf that root's slurmd was started with, by an option or its environment, if any.

    By its file, which no user decides about: anybody may run sudo under the name of slurmd, with such an option.
    """
    for process in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may have ended
            program = str((process / "exe").readlink()).removesuffix(" (deleted)")
            if _SLURMD.search(program) and process.stat().st_uid == 0 and not distrust(program):
                yield conf_in(_words_in(process / "cmdline"), _words_in(process / "environ"))


def conf_in(arguments: Sequence[str], environment: Sequence[str]) -> str:
    """The slurm.conf that these arguments of slurmd name, else its environment; empty if neither does."""
    for option, following in itertools.pairwise([*arguments[1:], ""]):
        if named := _CONF_OPTION.fullmatch(option):
            return named[1] or following
    return next((word.partition("=")[2] for word in environment if word.startswith(f"{CONF}=")), "")


def _words_in(file: Path) -> list[str]:
    return file.read_bytes().decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")


def output_of(*command: str) -> str:
    """The output of a Slurm command. Raises SlurmError."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(STEERING)}
    conf = slurm_conf()
    own |= {CONF: conf} if conf else {}
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
