"""A healthy cluster as Slurm reports it, and the faults that its checks are tested with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.core.verdict import Verdict

Json = dict[str, Any]
FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NODES = 4


def healthy() -> Json:
    """The `slurm` collector's report on four p5 nodes in one partition."""
    names = [f"gpu{number:03}" for number in range(1, NODES + 1)]
    return {
        "nodes": [
            {
                "name": name,
                "host": name,
                "address": name,
                "state": "IDLE",
                "gres": "gpu:8",
                "partitions": "gpu",
                "features": "p5.48xlarge",
                "reason": "",
                "reason_user": "",
                "reason_time": "",
            }
            for name in names
        ],
        "partitions": [{"partition": "gpu", "state": "UP", "is_default": True}],
        "config": {
            "Prolog": "/opt/clusterproof/prolog",
            "Epilog": "/opt/clusterproof/epilog",
            "PrologEpilogTimeout": "300",
            "PrologFlags": "Alloc,Contain",
            "HealthCheckProgram": "/opt/clusterproof/health-check",
            "HealthCheckInterval": "300 sec",
        },
        "topology": [{"switch": "leaf1", "nodes": names}],
    }


@dataclass(frozen=True)
class SlurmFault:
    """A fault: its change to Slurm's report, the verdicts that change, and words of the message."""

    name: str
    change: Callable[[Json], object]
    expect: Mapping[str, Verdict]
    words: str

    def put(self) -> Json:
        report = copy.deepcopy(healthy())
        self.change(report)
        return report


def node(report: Json, number: int, **values: str) -> None:
    report["nodes"][number].update(values)


def config(report: Json, **values: str) -> None:
    report["config"].update(values)


def many(report: Json) -> None:
    """Seventeen nodes, and no topology."""
    report["nodes"] += [{**report["nodes"][0], "name": f"gpu{number:03}"} for number in range(5, 18)]
    report["topology"] = None


SLURM_FAULTS = (
    SlurmFault(
        "a node that somebody drained",
        lambda report: node(report, 2, state="IDLE+DRAIN", reason="the fan is loud", reason_user="root"),
        {"slurm_nodes_take_jobs": FAIL},
        "gpu003: IDLE+DRAIN (the fan is loud, by root); expected nodes that take jobs",
    ),
    SlurmFault(
        "a node that is down",
        lambda report: node(report, 3, state="DOWN*", reason="Not responding"),
        {"slurm_nodes_take_jobs": FAIL},
        "gpu004: DOWN* (Not responding)",
    ),
    SlurmFault(
        "a node that the health check drained",
        lambda report: node(report, 0, state="IDLE+DRAIN", reason="clusterproof: gpu.no_xid: Xid 79"),
        {"slurm_nodes_take_jobs": CONCERN},
        "clusterproof: gpu.no_xid: Xid 79",
    ),
    SlurmFault(
        "a node that stopped answering after the health check had drained it, whose reason Slurm keeps",
        lambda report: node(report, 0, state="DOWN+DRAIN+NOT_RESPONDING", reason="clusterproof: gpu.no_xid: Xid 79"),
        {"slurm_nodes_take_jobs": FAIL},
        "gpu001: DOWN+DRAIN+NOT_RESPONDING (clusterproof: gpu.no_xid: Xid 79); expected nodes that take jobs",
    ),
    SlurmFault(
        "a partition that somebody closed",
        lambda report: report["partitions"][0].update(state="DOWN"),
        {"slurm_nodes_take_jobs": FAIL},
        "gpu[001-004]: partition gpu is DOWN; expected each node in a partition that is UP",
    ),
    SlurmFault(
        "two closed partitions, and nodes of one of them that are in an open one too",
        lambda report: (
            [node(report, number, partitions="gpu,low") for number in (0, 1)],
            [node(report, number, partitions="old") for number in (2, 3)],
            report["partitions"][0].update(state="INACTIVE"),
            report["partitions"].append({"partition": "low", "state": "UP", "is_default": False}),
            report["partitions"].append({"partition": "old", "state": "DRAIN", "is_default": False}),
        ),
        {"slurm_nodes_take_jobs": FAIL},
        "gpu[003-004]: partition old is DRAIN; expected each node in a partition that is UP",
    ),
    SlurmFault(
        "a node with fewer GPUs in its GRES",
        lambda report: node(report, 1, gres="gpu:h100:7(S:0-1)"),
        {"slurm_gres": FAIL},
        "gpu002 has GRES gpu:h100:7(S:0-1) and 8 GPUs; expected the same number",
    ),
    SlurmFault(
        "nodes without GRES",
        lambda report: [node(report, number, gres="") for number in range(NODES)],
        {"slurm_gres": FAIL},
        "gpu[001-004] has GRES (null) and 8 GPUs",
    ),
    SlurmFault(
        "a partition of 17 nodes without a topology", many, {"slurm_topology": CONCERN}, "17 nodes and no topology"
    ),
    SlurmFault(
        "a node under no switch",
        lambda report: report["topology"][0].update(nodes=["gpu001", "gpu002", "gpu003"]),
        {"slurm_topology": CONCERN},
        "gpu004 not in any switch or block",
    ),
    SlurmFault(
        "a prolog without a limit",
        lambda report: config(report, PrologEpilogTimeout="65534"),
        {"slurm_config": CONCERN},
        "Prolog has no time limit, Epilog has no time limit",
    ),
    SlurmFault(
        "an epilog without a limit of its own",
        lambda report: config(report, PrologTimeout="300", EpilogTimeout="65534"),
        {"slurm_config": CONCERN},
        "Epilog has no time limit; expected",
    ),
    SlurmFault(
        "a prolog that runs at the first step only",
        lambda report: config(report, PrologFlags="(null)"),
        {"slurm_config": CONCERN},
        "PrologFlags is not set",
    ),
    SlurmFault(
        "no health check",
        lambda report: config(report, HealthCheckProgram="(null)"),
        {"slurm_config": CONCERN},
        "HealthCheckProgram is not set",
    ),
    SlurmFault(
        "a health check that never runs",
        lambda report: config(report, HealthCheckInterval="0 sec"),
        {"slurm_config": CONCERN},
        "HealthCheckInterval is 0",
    ),
)
