"""Launchers start a meter on pairs and groups of nodes; all have one interface (`suite.perf.pairs_measure`).

This module: the interface, its parameters, and the attribution of failures to nodes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clusterproof.plugins.benchmarks.meters import Meter, MeterSettings
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.evidence.pairs import NodeGroup, Pair, Reading
from clusterproof.plugins.transport import Connection, Limits, Unusable, connection_for

FOLDER = Path(__file__).parent
PLUGINS = FOLDER.parents[1]
RUN_S = 120.0
WHOLE_S = 3600.0

PairOrGroup = Pair | NodeGroup
Measured = Callable[[Any, Reading], None]  # called with a pair or group that was to be measured


@dataclass(frozen=True, slots=True)
class MeterCampaign:
    """A meter on a cluster.

    `run_s` is the deadline of one run, including its start. `whole_s` is the time for all of them: reservations end
    after it, even if nobody is left to release them. `connection` is None to use the one that the cluster names.
    """

    meter: Meter
    settings: MeterSettings
    cluster: Cluster
    limits: Limits
    run_s: float = RUN_S
    whole_s: float = WHOLE_S
    connection: Connection | None = None

    @property
    def ranks_per_node(self) -> int:
        """How many ranks a collective meter has on each node."""
        return self.settings.ranks_per_node or 1

    def reach(self) -> Connection:
        """The connection to the nodes. Raises LookupError."""
        return self.connection or connection_for(self.cluster.connection)

    def target(self, node: str) -> Target:
        """A node by its name. Raises LookupError."""
        target = next((target for target in self.cluster.targets if target.name == node), None)
        if target is None:
            raise LookupError(f"{node} is none of the nodes that are measured")
        return target


def typed(campaign: MeterCampaign, reading: Reading, launch: str, nodes: PairOrGroup) -> Reading:
    """The reading with the command that a person types for the same; `launch` starts ranks on the nodes."""
    command = campaign.meter.command
    return replace(reading, command=command(campaign.settings, launch, tuple(nodes))) if command else reading


def check_settings(campaign: MeterCampaign) -> None:
    """Ask the meter for its command lines. Raises Unusable for invalid settings."""
    meter, settings = campaign.meter, campaign.settings
    try:
        if meter.ranks:
            meter.ranks(settings)
        elif meter.server and meter.client:
            meter.server(settings, 1)
            meter.client(settings, "localhost", 1)
    except ValueError as problem:
        raise Unusable(f"{meter.name}: {problem}") from None


class Launcher(AbstractContextManager["Launcher"]):
    """Runs the campaign's meter. `close`, or leaving `with`, ends everything that it started or reserved.

    Between rounds `campaign` may be replaced by one with other settings for the same meter and nodes.
    """

    campaign: MeterCampaign

    @abstractmethod
    def measure(self, together: Sequence[PairOrGroup], measured: Measured) -> None:
        """Measure all these pairs, or groups, at the same time; no node may be in two of them.

        `measured` is called once for each, from any thread. Never raises for a single pair or group; raises Unusable if
        nothing can be measured at all. Groups are for collective meters.
        """

    @abstractmethod
    def close(self) -> None:
        """Release reservations, and end what still runs. May be called twice."""

    def __exit__(self, *_: object) -> None:
        self.close()


def attributed(reading: Reading, called: Mapping[str, Iterable[str]], was_ended: bool = False) -> Reading:
    """The measurement with its culprit as a node of the pair; `called` maps nodes to the names used in the output.

    What programs say about each other after being killed (`was_ended`) is ignored.
    """
    if not reading.culprit:
        return reading
    culprit = _short(reading.culprit)
    meant = [node for node, names in called.items() if culprit in map(_short, (node, *names))]
    return replace(reading, culprit=meant[0] if len(meant) == 1 and not was_ended else "")


def _short(name: str) -> str:
    """A host name without its domain; an address unchanged."""
    return name if name[:1].isdecimal() or ":" in name else name.partition(".")[0]
