"""What Slurm says of its nodes, typed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.facts.field import Field, objects, read, text
from clusterproof.plugins.verdict import Incomplete

_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,(]{1,100})?:(\d{1,4})(?=[,(]|$)")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node as `scontrol show node` or `sinfo` tells of it."""

    told: Mapping[str, Any]

    name = Field(text)
    state = Field(text)
    gres = Field(text)
    reason = Field(text)
    reason_user = Field(text)
    reason_time = Field(text)

    @property
    def states(self) -> frozenset[str]:
        """The base state and its flags, in capitals: `IDLE+DRAIN` is IDLE and DRAIN. Raises Incomplete."""
        return frozenset(re.split(r"[+*]", self.state.upper())) - {""}

    @property
    def answers(self) -> bool:
        """Whether slurmctld hears from its slurmd. Raises Incomplete."""
        return "*" not in self.state and not self.states & {"NOT_RESPONDING", "NO_RESPOND"}

    @property
    def gpus(self) -> int:
        """The GPUs in its GRES, of every model. Raises Incomplete."""
        return sum(int(count) for count in _GPUS.findall(self.gres))

    @property
    def why(self) -> str:
        """` (kernel upgrade, by root at 2026-07-22T23:31:17)`; empty where nobody gave a reason."""
        told = [value for value in (self.told.get(key) for key in ("reason", "reason_user", "reason_time")) if value]
        if not told or not self.told.get("reason"):
            return ""
        user = f", by {self.reason_user}" if self.told.get("reason_user") else ""
        time = f" at {self.reason_time}" if self.told.get("reason_time") else ""
        return f" ({self.reason}{user}{time})"


@dataclass(frozen=True, slots=True)
class SlurmNodes:
    """The nodes that were captured: this one, or the whole cluster."""

    told: Mapping[str, Any]

    def named(self, *names: str) -> SlurmNode:
        """The node by one of its names; the only one of a capture that knows no other name. Raises Incomplete."""
        found = read(self.told.get("nodes"), objects, "slurm_node: nodes")
        own = [entry for entry in found if entry.get("name") in names or entry.get("host") in names]
        if own or (len(found) == 1 and len(names) == 1):
            return SlurmNode((own or found)[0])
        raise Incomplete(f"Slurm tells of {len(found)} nodes, and {names[0]} is none of them")
