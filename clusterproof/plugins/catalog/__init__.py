"""The catalogue: numbers and names with their sources, in TOML files that are read on first use.

Here: the numbers that a run goes by, packaged ones or a site's own in their place; and who a finding is routed to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.instance_types import instance_types, machine_row
from clusterproof.plugins.catalog.nvidia import (
    ClocksEventReason,
    RecoveryAction,
    SXids,
    Xid,
    clocks_event_reasons,
    fabric_faults,
    fabric_state,
    fabric_statuses,
    fabric_summary,
    recovery_action,
    recovery_action_in_log,
    sxids,
    unknown_clocks_event_reasons,
    xid,
    xids,
)
from clusterproof.plugins.catalog.rows import CatalogError, document, table
from clusterproof.plugins.core.cluster import InstanceType
from clusterproof.plugins.core.record import field, record
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import Incomplete

if TYPE_CHECKING:
    from clusterproof.plugins.core.policy import Policy


FILE = "thresholds.toml"
SITE = "site."  # begins the names of numbers that only a site's own checks compare with, and only its policy sets
FLOORS = "floors.toml"

_ACCELERATED = re.compile(r"(?:ml\.)?(?:p|g|gr|trn|inf|dl)\d")  # families of types that have accelerators


@record
class Threshold:
    """One number, its unit and its source."""

    value: float
    unit: str
    source: str


@cache
def thresholds() -> Mapping[str, Threshold]:
    """Every row of thresholds.toml by `table.key`. Raises CatalogError."""
    return {f"{name}.{key}": row for name in document(FILE) if name != "sources" for key, row in _of(name).items()}


@cache  # asked for by each check of each device
def threshold_row(name: str) -> Threshold:
    """The row called `table.key`. Raises CatalogError."""
    section, _, key = name.rpartition(".")
    if section not in document(FILE) or key not in _of(section):
        from clusterproof.plugins.core.strict import nearest  # few names are wrong

        own = f"a number of a site's own is {SITE}NAME, and stands under [thresholds.site] of its policy"
        raise CatalogError(f"{FILE} has no {name!r:.80}{nearest(name, thresholds())}; {own}")
    return _of(section)[key]


@cache
def _of(section: str) -> Mapping[str, Threshold]:
    return table(Threshold, FILE, section)


@cache
def floors() -> Mapping[str, Mapping[str, Threshold]]:
    """Every row of floors.toml by instance type and measurement. Raises CatalogError."""
    return {name: table(Threshold, FLOORS, name) for name in document(FLOORS) if name != "sources"}


def floor(instance_type: str, measurement: str) -> float | None:
    """The least of `all_reduce`, `host_to_gpu`, … on one node of a type; None where nobody has published one."""
    row = floors().get(instance_type, {}).get(measurement)
    return row.value if row else None


@record
class Catalog:
    """Thresholds and instance types; a site's own, kept here, take precedence over the packaged ones."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    instance_types: Mapping[str, InstanceType] = field(default_factory=dict)

    @staticmethod
    def of(policy: Policy) -> Catalog:
        """The catalogue as a site's policy has it."""
        is_packaged = not policy.thresholds and not policy.instance_types
        return PACKAGED if is_packaged else Catalog(policy.thresholds, policy.instance_types)

    def threshold(self, name: str) -> float:
        """The number called `table.key` (`shm.minimum_gib`), in the unit of its row.

        Raises CatalogError; Incomplete for a site's own (`site.key`) that its policy does not set.
        """
        if name in self.thresholds:
            return self.thresholds[name]
        if name.startswith(SITE):
            key = name.removeprefix(SITE)
            raise Incomplete(f"the policy sets no {key}; expected {key} = NUMBER under [thresholds.site]")
        return threshold_row(name).value

    def instance_type(self, name: str) -> InstanceType | None:
        """The row of a type by EC2's or SageMaker's name (`ml.p5.48xlarge`) or a machine's (`DGX H100`), if any."""
        name = name.strip().removeprefix("ml.")
        return self.instance_types.get(name) or instance_types().get(name) or machine_row(name)

    def accelerators(self, name: str) -> int | None:
        """How many GPUs or Neuron devices an instance of a type has; None where no row has it."""
        row = self.instance_type(name)
        if row is None:
            return None if _ACCELERATED.match(name) else 0
        return row.gpus or row.neuron_devices or (0 if row.gpus == 0 else None)

    def efa_devices(self, name: str) -> int | None:
        """How many EFA devices an instance of a type has at most; None where no row has it."""
        row = self.instance_type(name)
        return row.efa if row else None


PACKAGED = Catalog()


EXACT = "exact.toml"


@record
class ExactKind:
    """A data type: the bits of its significand, and of the accumulator."""

    name: str
    significand: int
    accumulator: int
    source: str


@cache
def exact_kinds() -> Mapping[str, ExactKind]:
    """Every row of exact.toml by its type. Raises CatalogError."""
    return table(ExactKind, EXACT, "kinds", "name")


@cache
def exact_kinds_setting() -> str:
    """The same as a setting of collectors: `float32:24:24,…`."""
    return ",".join(f"{kind.name}:{kind.significand}:{kind.accumulator}" for kind in exact_kinds().values())


@record
class Owner:
    """One owner of findings. `team` is who has most of them, in a word; `teams` the same by section."""

    mark: str  # the pytest mark's name: hyperpod_node_debugger
    words: str
    source: str
    team: str
    teams: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)  # "G": what the section is about

    def team_for(self, section: str, action: str, check: str) -> str:
        """Whose a finding is, by its section, what is to be done, and the check's name: `hardware`."""
        team, exceptions = self.teams.get(section, self.team), document("owners.toml")["teams"]
        return str(exceptions["by_check"].get(check) or exceptions["by_action"].get(action, {}).get(team, team))

    @property
    def name(self) -> str:
        """The skill's name as its maintainers write it: `hyperpod-node-debugger`."""
        return self.mark.replace("_", "-")


@cache
def owners() -> Mapping[str, Owner]:
    """Every row of owners.toml by the name of its mark. Raises CatalogError."""
    return table(Owner, "owners.toml", "owner", key="mark")


def owner(mark: str) -> Owner | None:
    """The owner by the name of its mark, if there is one."""
    return owners().get(mark)


__all__ = [
    "PACKAGED",
    "Catalog",
    "CatalogError",
    "ClocksEventReason",
    "InstanceType",
    "Owner",
    "RecoveryAction",
    "SXids",
    "Threshold",
    "Xid",
    "clocks_event_reasons",
    "fabric_faults",
    "fabric_state",
    "fabric_statuses",
    "fabric_summary",
    "instance_types",
    "owner",
    "owners",
    "recovery_action",
    "recovery_action_in_log",
    "sxids",
    "thresholds",
    "unknown_clocks_event_reasons",
    "xid",
    "xids",
]
