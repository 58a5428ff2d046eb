"""Runs of pairs and groups through a launcher that gives prepared results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.launchers import Launcher, Measured, MeterCampaign
from clusterproof.plugins.benchmarks.meters import MeterSettings
from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.evidence.cluster import ClusterFacts
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.evidence.pairs import NodeGroup, Reading
from clusterproof.plugins.suite.perf import pairs_measure
from clusterproof.plugins.suite.perf.pairs_measure import MeasuringSetup, measure
from clusterproof.plugins.suite.perf.pairs_options import PairOptions
from clusterproof.plugins.transport import Limits, connection_for

NAMES = [f"n{number:02}" for number in range(16)]
RUN_S = 10.0
OPTIONS = PairOptions(
    which="quick",
    groups="doubling",
    named_pairs=(),
    at_once=1_000,
    budget_s=600.0,
    run_s=60.0,
    seed=1,
    resume=None,
    meter="nccl-tests",
    settings=MeterSettings(ranks_per_node=8, size_bytes=2**30),
    launcher="",
    baseline=None,
    save_baseline=None,
)
Answer = Callable[[Any], Reading]


def well(nodes: Any) -> Reading:
    return Reading(400.0, size_bytes=2**30, is_correct=True, seconds=1.0, command=f"mpirun --host {','.join(nodes)}")


@dataclass
class Launched(Launcher):
    """A launcher that measures nothing and keeps its arguments."""

    answer: Answer = well
    campaign: MeterCampaign = field(init=False)
    groups: list[tuple[int, bool]] = field(default_factory=list)  # number of nodes, and whether briefly

    def measure(self, together: Sequence[Any], measured: Measured) -> None:
        """Return the prepared results."""
        for each in together:
            if isinstance(each, NodeGroup):
                self.groups.append((len(each.nodes), self.campaign.settings.is_brief))
            measured(each, self.answer(each))

    def close(self) -> None:
        """Do nothing."""


@dataclass
class Timed:
    """A launcher's simulated clock: each batch takes ten seconds."""

    now_s: float = field(default=0.0, init=False)
    batches: list[tuple[Any, ...]] = field(default_factory=list, init=False)

    def clock(self) -> float:
        """Seconds."""
        return self.now_s

    def run(self, together: Sequence[Any]) -> None:
        """Let a batch pass."""
        self.batches.append(tuple(together))
        self.now_s += RUN_S


@dataclass
class Run:
    """Runs in one folder."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)

    def __call__(
        self,
        launched: Launched,
        text: Any = str,
        unavailable: Mapping[str, str] | None = None,
        types: Mapping[str, str] | None = None,
        **options: Any,
    ) -> PairwiseRun:
        """Measure nodes whose names differ from those shown."""

        def launcher_for(campaign: MeterCampaign, _name: str) -> Launched:
            launched.campaign = campaign
            return launched

        self.monkeypatch.setattr(pairs_measure, "launcher_for", launcher_for)
        shown = Cluster("c", "ssh", tuple(Target(name, instance_type=(types or {}).get(name, "")) for name in NAMES))
        real = Cluster("c", "ssh", tuple(Target(f"secret-{name}") for name in NAMES))
        facts = ClusterFacts(
            shown, NodeEvidence("c"), {target.name: Node(target, NodeEvidence(target.name)) for target in shown.targets}
        )
        by_name = {name: f"secret-{name}" for name in NAMES}
        setup = MeasuringSetup(
            real,
            connection_for("ssh"),
            Limits(),
            self.folder,
            by_name,
            unavailable or {},
            text,
            self.said.append,
            "again",
        )
        return measure(replace(OPTIONS, **options), facts, setup)
