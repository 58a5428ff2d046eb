"""A test's GPU reports, and a check's result on them."""

from __future__ import annotations

from typing import Any

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.node import Node

UNSUPPORTED = {"error": "NOT_SUPPORTED", "text": ""}
UNKNOWN = {"error": "UNKNOWN", "text": ""}
GPU = {"index": 0, "lost": None, "pci": "0000:53:00.0", "mig_mode": False, "uuid": "GPU-1", "serial": "1"}
ON_BUS = {"address": "0000:53:00.0", "vendor": "10de", "device": "2330", "class": "030200", "driver": "nvidia"}
NO_AER = {"correctable": None, "nonfatal": None, "fatal": None}


def evaluated(
    check: str,
    instance_type: str = "p5.48xlarge",
    policy: Policy = NO_POLICY,
    *,
    gpus: list[dict[str, Any]],
    **collectors: Any,
) -> Result:
    """A check's result on a node with exactly these GPU reports and these other collectors."""
    nvml = {"init": None, "init_s": 0.1, "driver": "580.126.09", "count": len(gpus), "gpus": gpus}
    reports = {"nvml": nvml, "pci": {"devices": [{**ON_BUS, "errors": NO_AER}]}} | collectors
    evidence = NodeEvidence(
        "gpu001",
        {
            name: value if isinstance(value, Collected) else Collected(Status.READ, value)
            for name, value in reports.items()
        },
    )
    return evaluate(node_checks()[check], Node(Target("gpu001", instance_type=instance_type), evidence, policy=policy))


def bus(*numa: int, driver: str | None = "nvidia", nvswitches: int = 4) -> dict[str, Any]:
    """The PCI bus with GPUs on these NUMA nodes, and this many NVSwitches."""
    gpus = [
        {**ON_BUS, "address": f"0000:{0x53 + n:02x}:00.0", "numa": node, "driver": driver}
        for n, node in enumerate(numa)
    ]
    return {"devices": gpus + [{**ON_BUS, "address": "0000:dc:00.0", "class": "068000"}] * nvswitches}


def beside(first: dict[str, Any], *others: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**GPU, "index": n, **changed} for n, changed in enumerate((first, *others))]
