"""A fault that the Kubernetes checks are tested with, and helpers that inject it into the reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusterproof.plugins.core.verdict import Verdict
from tests.builders.recordings import gpu
from tests.checks.control_plane.kubernetes_cluster import (
    HALF_AN_HOUR_AGO,
    NAMES,
    Json,
    Words,
    healthy,
    pod,
)

FAIL, CONCERN, INCOMPLETE, NOT_APPLICABLE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
PLUGIN = "nvidia-device-plugin-daemonset"


@dataclass(frozen=True)
class KubernetesFault:
    """A fault: its change to the reports, the verdicts that change, and words of the message."""

    name: str
    change: Callable[[Words], object]
    expect: Mapping[str, Verdict]
    words: str

    def put(self) -> Words:
        reports = healthy()
        self.change(reports)
        return reports


def set_condition(reports: Words, changed: Json, number: int = 2) -> None:
    """Set the condition of that kind on one node."""
    node = reports.nodes[number]
    node["conditions"] = [condition for condition in node["conditions"] if condition["kind"] != changed["kind"]] + [
        changed
    ]


def give(reports: Words, number: int, has: Json, gives: Json | None = None) -> None:
    reports.nodes[number]["capacity"].update(has)
    reports.nodes[number]["allocatable"].update(has if gives is None else gives)


def label(reports: Words, number: int, **labels: str) -> None:
    reports.nodes[number]["labels"].update(labels)


def taint(reports: Words, number: int, key: str, effect: str = "NoSchedule") -> None:
    reports.nodes[number]["taints"] = [
        *reports.nodes[number]["taints"],
        {"key": key, "value": "", "effect": effect, "ours": "clusterproof" in key},
    ]


def one_gpu_lost(reports: Words) -> None:
    nvml = reports.of_nodes[NAMES[1]]["nvml"]
    nvml.update(count=7, gpus=nvml["gpus"][:7])


def process(reports: Words, *holders: Json, node: str = NAMES[1]) -> None:
    reports.of_nodes[node]["nvml"]["gpus"][3]["processes"] = list(holders)


def others_gpus(reports: Words) -> None:
    reports.of_nodes[NAMES[1]]["nvml"]["gpus"] = [
        gpu(index, name="NVIDIA A100-SXM4-80GB", processes=[]) for index in range(8)
    ]


def gpu_of(reports: Words, index: int) -> Json:
    """A GPU as the second node's NVML reports it."""
    reported: Json = reports.of_nodes[NAMES[1]]["nvml"]["gpus"][index]
    return reported


def ill(reports: Words, daemon_set: str, container: Json, **changed: object) -> None:
    reports.pod_of(daemon_set, NAMES[1]).update(ready=False, unready=[container], **changed)


def missing(reports: Words, daemon_set: str) -> None:
    reports.pods.remove(reports.pod_of(daemon_set, NAMES[2]))


def job(reports: Words, **changed: object) -> None:
    reports.pods[-1].update(changed)


def kubelet(reports: Words, number: int, **changed: object) -> None:
    """Change the report on one node's kubelet: `configured`, `in_force`, `changed`."""
    reports.of_nodes[NAMES[number]]["kubelet"].update(changed)


def without_driver(reports: Words, number: int, driver: str) -> None:
    reports.storage["nodes"][number]["drivers"].remove(driver)


def unbound(reports: Words, claim: Json, **of_pod: object) -> None:
    """A claim, and a pod that waits for it and for GPUs: for half an hour by default."""
    reports.storage["claims"].append(claim)
    waits = {"created": HALF_AN_HOUR_AGO, "phase": "Pending", "accelerators": 8, "gates": 0, **of_pod}
    reports.pods.append(pod("worker-9", "", volume_claims=[claim["name"]], **waits))
