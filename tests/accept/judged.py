"""Simulated nodes whose speed the checks themselves report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.result import Result
from tests.accept.simulated import Nodes
from tests.builders.evaluated import result_of as evaluated
from tests.checks.perf.given import bus_of, copying

ONE_FAR = (0, 0, 0, 1)  # the sockets of four GPUs, one apart


@dataclass
class Judged(Nodes):
    """Nodes with several GPUs whose speed the check reports."""

    models: dict[str, list[str]] = field(default_factory=dict)  # PCI device ids of their GPUs, if the bus shows them
    of_run: dict[str, NodeEvidence] = field(default_factory=dict)

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        made = super()._evidence(stage, node)
        if node in self.models:
            made = NodeEvidence(node, collectors={**made.collectors, **bus_of(self.models[node])})
        self.of_run = ({} if stage != "speed" else self.of_run) | {node: made}
        return made

    def _result(self, stage: str, node: str) -> Result:
        if stage != "speed":
            return super()._result(stage, node)
        others = [of for name, of in self.of_run.items() if name != node]
        return evaluated("gpu.gpu_gemm", self.of_run[node], *others, occasion="perf")


def gpus(names: tuple[str, ...], count: int = 8) -> dict[str, list[str]]:
    """The GPUs of each node."""
    return {node: [f"{node}-{gpu}" for gpu in range(count)] for node in names}


@dataclass
class Copying(Nodes):
    """Nodes whose GPUs copy, with the speeds that the check reports; one of them differs."""

    usual: Mapping[str, Any] = field(default_factory=dict)
    unlike: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    of_run: dict[str, NodeEvidence] = field(default_factory=dict)

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        made = super()._evidence(stage, node)
        if stage == "speed":
            built = {"sockets": ONE_FAR, **self.usual, **self.unlike.get(node, {})}
            others = {name: of for name, of in made.collectors.items() if name != "gpu_gemm"}
            made = NodeEvidence(node, collectors={**others, **copying(name=node, **built).collectors})
            self.of_run[node] = made
        return made

    def _result(self, stage: str, node: str) -> Result:
        if stage != "speed":
            return super()._result(stage, node)
        others = [of for name, of in self.of_run.items() if name != node]
        return evaluated("gpu.gpu_bandwidth", self.of_run[node], *others, occasion="perf")
