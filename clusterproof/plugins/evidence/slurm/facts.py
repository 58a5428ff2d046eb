"""Typed facts on Slurm nodes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from clusterproof.plugins.core.message import number_of, printable
from clusterproof.plugins.core.nodeset import expand, fold, within
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    at_least_one,
    boolean,
    objects,
    optional,
    read,
    table,
    text,
    texts,
)

OPEN = "UP"  # the state of a partition that takes jobs and starts them
MAX_NAMES = 200  # characters
LISTED_WITH_REASON = "DOWN OR DRAINED"  # the states in the output of sinfo -R, which lists no others
POWERED_DOWN = frozenset(
    {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POW_DN", "POWERED_DN", "POWRING_DN"} | {"POWER"}  # Slurm 20.11's
)
POWERING_UP = frozenset({"POWERING_UP", "POWER_UP", "POW_UP"})
DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING", "DRNG"})
DOWN_OR_DRAINED = DRAINED | {"DOWN", "FAIL", "FAILING", "FAILG", "ERROR", "INVAL", "INVALID_REG", LISTED_WITH_REASON}
OUT_OF_USE = POWERED_DOWN | DOWN_OR_DRAINED | {"FUTURE", "FUTR", "UNKNOWN", "UNK", "PLANNED_DOWN"}
_WORDS = """
ALLOCATED BLOCKED CANCEL_REBOOT CLOUD COMPLETING DOWN DRAIN DRAINED DRAINING DYNAMIC DYNAMIC_FUTURE DYNAMIC_NORM ERROR
EXTERNAL FAIL FAILING FUTURE IDLE INVAL INVALID INVALID_REG MAINT MAINTENANCE MIXED NOT_RESPONDING NO_RESPOND
PERFCTRS PLANNED POWERED_DOWN POWERING_DOWN POWERING_UP POWER_DOWN POWER_UP REBOOT REBOOT_CANCELED REBOOT_ISSUED
REBOOT_REQUESTED RESERVED RESUME UNDRAIN UNKNOWN
ALLOC BLOCK BOOT CANC_R COMP DRNG EXT FAILG FUTR MIX NPC PLND POWERED_DN POWERING_DN POWRING_DN POW_DN POW_UP RESM
RESV UNK
"""
STATES = OUT_OF_USE.union(_WORDS.split())  # states of a node, in full and in sinfo's abbreviation
_RECORDED = frozenset({"host", "gres", "partitions"})  # in a record of scontrol, not in sinfo's lists
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,(]{1,100})?:(\d{1,4})(?=[,(]|$)")

_MIG = re.compile(r"(?:^|,)gpu:[^:,(]{0,90}\dg\.\d{1,3}gb", re.IGNORECASE)


@record
class SlurmNode(Reported):
    """One node from `scontrol show node` or `sinfo`."""

    name = Field(text)
    state = Field(text)
    gres = Field(text)
    reason = Field(text)
    reason_user = Field(text)
    reason_time = Field(text)
    address = Field(text)

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions that it is in. Raises Incomplete."""
        return _words(read(self.data.get("partitions"), text, "partitions"))

    @property
    def features(self) -> tuple[str, ...]:
        """What jobs can ask for by name. Raises Incomplete."""
        return _words(read(self.data.get("features"), text, "features"))

    @property
    def takes_jobs(self) -> bool:
        """Whether Slurm starts jobs on it, now or after others have ended. Raises Incomplete."""
        return self.answers and bool(self.states) and not self.states & OUT_OF_USE

    @property
    def is_in_power_saving(self) -> bool:
        """Whether only power saving keeps jobs away: it is powered down, or powering up. Raises Incomplete."""
        return bool(self.states & (POWERED_DOWN | POWERING_UP)) and self.states & OUT_OF_USE <= POWERED_DOWN

    @property
    def states(self) -> frozenset[str]:
        """The base state and its flags, in capitals: `IDLE+DRAIN` is IDLE and DRAIN. Raises Incomplete."""
        return states_of(self.state)

    @property
    def answers(self) -> bool:
        """Whether slurmctld gets answers from its slurmd. Raises Incomplete."""
        return "*" not in self.state and not self.states & {"NOT_RESPONDING", "NO_RESPOND"}

    @property
    def gpus(self) -> int:
        """The GPUs in its GRES, of every model. Raises Incomplete."""
        return sum(int(count) for count in _GPUS.findall(self.gres))

    @property
    def has_divided_gpus(self) -> bool:
        """Whether its GRES counts MIG devices, as `gpu:h100_1g.10gb:56`, and not GPUs. Raises Incomplete."""
        return bool(_MIG.search(self.gres))

    @property
    def why(self) -> str:
        """` (kernel upgrade, by root at 2026-07-22T23:31:17)`; empty if no reason was given."""
        given = [value for value in (self.data.get(key) for key in ("reason", "reason_user", "reason_time")) if value]
        if not given or not self.data.get("reason"):
            return ""
        user = f", by {self.reason_user}" if self.data.get("reason_user") else ""
        time = f" at {self.reason_time}" if self.data.get("reason_time") else ""
        return f" ({self.reason}{user}{time})"


@record
class SlurmNodes(Reported):
    """The nodes in a capture: one, or the whole cluster."""

    @property
    def only(self) -> tuple[str, ...]:
        """The name of the only node; empty if there are several. Raises Incomplete."""
        entries = read(self.data.get("nodes"), objects, "slurm_node: nodes")
        return tuple(str(entry.get("name")) for entry in entries) if len(entries) == 1 else ()

    def named(self, *names: str, of_several: Collection[str] = ()) -> SlurmNode:
        """The node with one of these names; or the only record, unless it belongs to another node. Raises Incomplete.

        A capture may be called x.txt or case-4711, which are not node names. The record belongs to another node if
        the names differ only in numbers, or if several captures (`of_several`) have it.
        """
        entries = read(self.data.get("nodes"), objects, "slurm_node: nodes")
        own = [entry for entry in entries if entry.get("name") in names or entry.get("host") in names]
        is_only = len(names) == 1 and len(entries) == 1 and entries[0].get("name") not in of_several
        if own or (is_only and _may_be_of(entries[0], names[0])):
            return SlurmNode((own or entries)[0])
        bad = [entry for entry in entries if states_of(str(entry.get("state"))) & OUT_OF_USE - POWERED_DOWN]
        out = fold(str(entry.get("name")) for entry in bad)
        seen = f" (out of use: {printable(within(out, MAX_NAMES))})" if out else ""
        raise Incomplete(f"Slurm lists {number_of(len(entries), 'node')}{seen}, and {names[0]} is not among them")


@record
class Partition(Reported):
    """One partition."""

    name = Field(text, "partition")
    state = Field(text)

    is_default = Field(boolean)  # jobs that name no partition go there


@record
class SlurmCluster(Reported):
    """A cluster according to Slurm's commands."""

    config = Field(table)

    @property
    def nodes(self) -> tuple[SlurmNode, ...]:
        """Its nodes, at least one. Raises Incomplete."""
        return tuple(map(SlurmNode, at_least_one(read(self.data.get("nodes"), objects, "slurm: nodes"), "node")))

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """Its partitions. Raises Incomplete."""
        return tuple(map(Partition, read(self.data.get("partitions"), objects, "slurm: partitions")))

    def nodes_in_same_partitions(self, names: Iterable[str]) -> tuple[SlurmNode, ...]:
        """Every node of the partitions that these nodes are in; these too. Raises Incomplete."""
        wanted = frozenset(names)
        partitions = {partition for node in self.nodes if node.name in wanted for partition in node.partitions}
        return tuple(node for node in self.nodes if node.name in wanted or not partitions.isdisjoint(node.partitions))

    def nodes_in_closed_partitions(self, names: Iterable[str]) -> Mapping[str, list[str]]:
        """These nodes, as far as none of their partitions is UP, by the states of those. Raises Incomplete."""
        wanted = frozenset(names)
        states = {partition.name: partition.state for partition in self.partitions}
        closed: dict[str, list[str]] = {}
        for node in self.nodes:
            own = {name: states.get(name, OPEN) for name in node.partitions} if node.name in wanted else {}
            if own and OPEN not in own.values():
                words = ", ".join(f"partition {name} is {state}" for name, state in own.items())
                closed.setdefault(words, []).append(node.name)
        return closed

    def setting(self, name: str) -> str:
        """A setting in slurm.conf, without its unit; empty if it is not set. Raises Incomplete."""
        value = read(self.config.get(name), text, f"slurm: {name}")
        return "" if value == "(null)" else value.removesuffix(" sec")

    def program(self, name: str) -> str:
        """The first `Prolog` or `Epilog` (newer versions number them); empty if there is none. Raises Incomplete."""
        return self.setting(f"{name}[0]" if f"{name}[0]" in self.config else name)

    def limit_of(self, name: str) -> str:
        """The seconds that `Prolog` or `Epilog` may take, as Slurm reports them. Raises Incomplete.

        Newer versions have a limit for each; PrologEpilogTimeout is 65534 if it is not set.
        """
        return self.setting(f"{name}Timeout" if f"{name}Timeout" in self.config else "PrologEpilogTimeout")

    @property
    def switches(self) -> Mapping[str, str]:
        """The switch or block of each node; empty if Slurm has no topology. Raises Incomplete."""
        return {
            name: read(switch.get("switch"), text, "slurm: topology")
            for switch in self._topology or ()
            for name in read(switch.get("nodes"), nodes_named, "slurm: topology")
        }

    @property
    def nodes_in_topology(self) -> frozenset[str] | None:
        """The nodes in a switch or block; None if Slurm has no topology. Raises Incomplete."""
        if self._topology is None:
            return None
        held = (read(switch.get("nodes"), nodes_named, "slurm: topology") for switch in self._topology)
        return frozenset(name for names in held for name in names)

    @property
    def _topology(self) -> list[dict[str, Any]] | None:
        return read(self.data.get("topology"), optional(objects), "slurm: topology")


def _may_be_of(entry: Mapping[str, Any], name: str) -> bool:
    """Whether the only entry may belong to a capture of this name."""
    return not _RECORDED.isdisjoint(entry) and _kind(name) not in (_kind(entry.get("name")), _kind(entry.get("host")))


def _kind(name: object) -> str:
    """A node's name without its domain and its numbers."""
    return re.sub(r"\d{1,20}", "", str(name).partition(".")[0].lower())


def states_of(state: str) -> frozenset[str]:
    """The base state and the flags in a state."""
    return frozenset(re.split(r"[+*~#!%$@^-]", state.upper())) - {""}  # older versions of scontrol use sinfo's signs


def nodes_named(data: object) -> tuple[str, ...]:
    """The nodes of a switch: from a nodeset, or in older recordings a list."""
    return expand(data) if isinstance(data, str) else texts(data)


def _words(listed: str) -> tuple[str, ...]:
    return tuple(word for word in listed.split(",") if word)
