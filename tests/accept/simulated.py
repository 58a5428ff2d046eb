"""Runs of an acceptance without nodes: simulated results of `clusterproof check`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clusterproof.plugins.accept import RECORDING, RESULTS
from clusterproof.plugins.accept.plan import AcceptancePlan, plan_of
from clusterproof.plugins.accept.population import Errors
from clusterproof.plugins.accept.report import report, text
from clusterproof.plugins.accept.runner import EXIT, Acceptance
from clusterproof.plugins.accept.verdicts import NodeOutcome, NodeVerdict, of_nodes
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.result import Finding, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.recording import write_cluster, write_node
from clusterproof.reports.results import ResultsFile

NAMES = tuple(f"n{number}" for number in range(1, 9))
SPEED = 'stages = ["inventory", "speed"]\n'
ERRORS = Errors(good_rejected=0.001, bad_accepted=0.01, slower=0.05, shows_in=0.8)
STAGES = 'stages = ["inventory", "exact", "speed"]\n'
CHECK = {
    "inventory": "host.memlock",
    "exact": "gpu.gpu_exact",
    "speed": "gpu.gpu_gemm",
    **dict.fromkeys(("pairs", "groups", "collectives"), "network.straggler"),
}
Speed = Callable[[str, int], float]  # of a node in its n-th run: 1.0 is normal


def cluster_of(names: Sequence[str] = NAMES, groups: Mapping[str, str] | None = None, is_typed: bool = True) -> Cluster:
    """Nodes by ssh, with or without types in the inventory."""
    of_type = "p5.48xlarge" if is_typed else ""
    return Cluster(
        "c", "ssh", tuple(Target(name, group=(groups or {}).get(name, ""), instance_type=of_type) for name in names)
    )


def plan(folder: Path, text: str = STAGES, cluster: Cluster | None = None) -> AcceptancePlan:
    """The plan with this text."""
    path = folder / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return plan_of(path, cluster or cluster_of())


@dataclass
class Nodes:
    """Simulated nodes: the results that their runs leave, and the runs made so far."""

    speed: Speed = lambda _node, _run: 1.0
    verdicts: Mapping[tuple[str, str], Verdict] = field(default_factory=dict)  # by stage and node
    others: dict[str, Verdict] = field(default_factory=dict)  # by pair, or c for the cluster, in every inventory
    serials: dict[str, str] = field(default_factory=dict)
    gpus: dict[str, list[str]] = field(default_factory=dict)  # a node's GPUs by position, if it reports them
    gpu_speed: Callable[[str, str], float] = lambda _node, _uuid: 1.0
    message: str = "something; expected nothing"
    silent: dict[str, tuple[str, ...]] = field(default_factory=dict)  # nodes that do not answer, by stage
    firmware: dict[str, str] = field(default_factory=dict)  # the types that nodes report, if the inventory has none
    stop_after: int = 10**6  # number of launches before a signal arrives, at the start or end of one
    runs: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    measured: dict[str, int] = field(default_factory=dict)

    def launch(self, command: Sequence[str], folder: Path, _lock: int) -> int:
        """Run like `clusterproof check`. Raises KeyboardInterrupt."""
        if len(self.runs) >= self.stop_after:
            (folder / RESULTS).write_text('{"half', encoding="utf-8")
            raise KeyboardInterrupt
        nodes = tuple(expand(next(word for word in command if word.startswith("--nodes=")).partition("=")[2]))
        stage = folder.name.partition("-")[2]
        self.runs.append((stage, nodes))
        recording = folder / RECORDING
        write_cluster(recording, cluster_of(nodes, is_typed=not self.firmware))
        for node in nodes:
            write_node(recording, self._evidence(stage, node))
        with ResultsFile(folder / RESULTS) as file:
            for node in nodes:
                file.write(self._result(stage, node))
            for name, verdict in self.others.items() if stage == "inventory" else ():
                if set(name.split("~")) <= {"c", *nodes}:
                    file.write(self._of_others(name, verdict))
        (folder / EXIT).write_text("0\n", encoding="utf-8")
        return 0

    def _evidence(self, stage: str, node: str) -> NodeEvidence:
        if node in self.silent.get(stage, ()):
            return NodeEvidence(node, unreached=Unreached.TIMED_OUT, detail="timed out")
        made = {"vendor": "Amazon EC2", "product": self.firmware[node]} if node in self.firmware else {}
        collectors = {"platform": Collected(Status.READ, {"serial": self.serials.get(node, f"S-{node}"), **made})}
        if node in self.gpus:
            gpus = [{"index": at, "uuid": uuid} for at, uuid in enumerate(self.gpus[node])]
            collectors["nvml"] = Collected(Status.READ, {"gpus": gpus})
        if stage == "speed":
            self.measured[node] = self.measured.get(node, 0) + 1
            speed = 700.0 * self.speed(node, self.measured[node])
            own = [speed * self.gpu_speed(node, uuid) for uuid in self.gpus.get(node, [""])]
            output = json.dumps({"type": "torch.bfloat16", "size": 8192, "tflops": [[tflops] * 5 for tflops in own]})
            collectors["gpu_gemm"] = Collected(Status.READ, {"command": "python3", "exit": 0, "output": output})
        return NodeEvidence(node, collectors=collectors)

    def _result(self, stage: str, node: str) -> Result:
        is_silent = node in self.silent.get(stage, ())
        verdict = Verdict.INCOMPLETE if is_silent else self.verdicts.get((stage, node), Verdict.PASS)
        action = "fix configuration" if verdict is Verdict.FAIL and stage == "inventory" else ""
        message = "" if verdict is Verdict.PASS else self.message
        findings = (Finding(verdict, message, action=action),) if message else ()
        return Result(CHECK[stage], node, verdict, message=message, action=action, findings=findings)

    def _of_others(self, name: str, verdict: Verdict) -> Result:
        subject, check = ("pair", "network.pairwise_busbw") if "~" in name else ("cluster", "host.same_kernel")
        return Result(check, name, verdict, message=self.message, subject=subject)


def acceptance(folder: Path, nodes: Nodes, text: str = STAGES, cluster: Cluster | None = None) -> Acceptance:
    """An acceptance of simulated nodes in that folder."""
    cluster = cluster or cluster_of()
    return Acceptance(cluster, "ssh:n[1-8]", plan(folder, text, cluster), folder / "into", nodes.launch)


def outcomes_of(folder: Path, nodes: Nodes, more: str = "", names: tuple[str, ...] = NAMES) -> dict[str, NodeOutcome]:
    """The final verdict on each node."""
    made = acceptance(folder, nodes, SPEED + more, cluster_of(names))
    made.go_on((), lambda _words: None)
    assert text(report(made.state, made.ended, made.named, ""))
    return {outcome.node: outcome for outcome in of_nodes(made.state)}


def verdicts(outcomes: dict[str, NodeOutcome]) -> dict[str, NodeVerdict]:
    """The verdicts on nodes that are not accepted."""
    return {node: outcome.said for node, outcome in outcomes.items() if outcome.said is not NodeVerdict.ACCEPTED}
