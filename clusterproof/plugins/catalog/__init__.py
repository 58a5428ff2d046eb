"""The catalogue: what the suite knows in numbers and words, each row with its source. Files are read on first use.

This module: a run's thresholds, packaged or overridden by a site; and the owners of findings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from clusterproof.plugins.catalog.instance_types import ec2_name, instance_types, machine_row
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
SITE = "site."  # prefix of thresholds that only a site's own checks use, and only its policy sets
FLOORS = "floors.toml"

_ACCELERATED = re.compile(r"(?:ml\.)?(?:p|g|gr|trn|inf|dl)\d")  # families of types with accelerators


@record
class Threshold:
    """A number with its unit and source."""

    value: float
    unit: str
    source: str


@cache
def thresholds() -> Mapping[str, Threshold]:
    """Every row of thresholds.toml by `table.key`. Raises CatalogError."""
    return {f"{name}.{key}": row for name in document(FILE) if name != "sources" for key, row in _of(name).items()}


@cache  # called for each check of each device
def threshold_row(name: str) -> Threshold:
    """The row named `table.key`. Raises CatalogError."""
    section, _, key = name.rpartition(".")
    if section not in document(FILE) or key not in _of(section):
        from clusterproof.plugins.core.strict import nearest  # rarely needed

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
    """The minimum of `all_reduce`, `host_to_gpu`, … on one node of a type; None if nobody has published one."""
    row = floors().get(instance_type, {}).get(measurement)
    return row.value if row else None


@record
class Catalog:
    """Thresholds and instance types: a site's own, which are stored here, override those that are packaged."""

    thresholds: Mapping[str, float] = field(default_factory=dict)
    instance_types: Mapping[str, InstanceType] = field(default_factory=dict)

    @staticmethod
    def of(policy: Policy) -> Catalog:
        """The catalogue with a site's policy applied."""
        is_packaged = not policy.thresholds and not policy.instance_types
        return PACKAGED if is_packaged else Catalog(policy.thresholds, policy.instance_types)

    def threshold(self, name: str) -> float:
        """The threshold `table.key` (`shm.minimum_gib`), in the unit of its row.

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
        name = ec2_name(name)
        return self.instance_types.get(name) or instance_types().get(name) or machine_row(name)

    def accelerators(self, name: str) -> int | None:
        """How many GPUs or Neuron devices an instance of a type has; None if it is not in the catalogue."""
        row = self.instance_type(name)
        if row is None:
            return None if _ACCELERATED.match(name) else 0
        return row.gpus or row.neuron_devices or (0 if row.gpus == 0 else None)

    def efa_devices(self, name: str) -> int | None:
        """The maximum number of EFA devices on an instance of a type; None if it is not in the catalogue."""
        row = self.instance_type(name)
        return row.efa if row else None


PACKAGED = Catalog()


EXACT = "exact.toml"


@record
class ExactKind:
    """A data type: the bits of its significand, and of the type in which its products are summed."""

    name: str
    significand: int
    accumulator: int
    source: str


@cache
def exact_kinds() -> Mapping[str, ExactKind]:
    """Every row of exact.toml by type. Raises CatalogError."""
    return table(ExactKind, EXACT, "kinds", "name")


@cache
def exact_kinds_setting() -> str:
    """The same as a setting of collectors: `float32:24:24,…`."""
    return ",".join(f"{kind.name}:{kind.significand}:{kind.accumulator}" for kind in exact_kinds().values())


@record
class Owner:
    """An owner skill. `team` owns most of its findings, in a word; `teams` overrides that by section."""

    mark: str  # the name of its pytest mark: hyperpod_node_debugger
    words: str
    source: str
    team: str
    teams: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)  # "G": the topic of the section

    def team_for(self, section: str, action: str, check: str) -> str:
        """The team for a finding, by its section, its action, and the check's name: `hardware`."""
        team, exceptions = self.teams.get(section, self.team), document("owners.toml")["teams"]
        return str(exceptions["by_check"].get(check) or exceptions["by_action"].get(action, {}).get(team, team))

    @property
    def name(self) -> str:
        """The skill's name in its repository: `hyperpod-node-debugger`."""
        return self.mark.replace("_", "-")


@cache
def owners() -> Mapping[str, Owner]:
    """Every row of owners.toml by mark name. Raises CatalogError."""
    return table(Owner, "owners.toml", "owner", key="mark")


def owner(mark: str) -> Owner | None:
    """The owner with this mark name, if there is one."""
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
