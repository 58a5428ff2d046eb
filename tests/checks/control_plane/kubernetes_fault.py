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
        words = healthy()
        self.change(words)
        return words


def set_condition(words: Words, changed: Json, number: int = 2) -> None:
    """Set the condition of that kind on one node."""
    node = words.nodes[number]
    node["conditions"] = [one for one in node["conditions"] if one["kind"] != changed["kind"]] + [changed]


def give(words: Words, number: int, has: Json, gives: Json | None = None) -> None:
    words.nodes[number]["capacity"].update(has)
    words.nodes[number]["allocatable"].update(has if gives is None else gives)


def label(words: Words, number: int, **labels: str) -> None:
    words.nodes[number]["labels"].update(labels)


def taint(words: Words, number: int, key: str, effect: str = "NoSchedule") -> None:
    words.nodes[number]["taints"] = [
        *words.nodes[number]["taints"],
        {"key": key, "value": "", "effect": effect, "ours": "clusterproof" in key},
    ]


def one_gpu_lost(words: Words) -> None:
    nvml = words.of_nodes[NAMES[1]]["nvml"]
    nvml.update(count=7, gpus=nvml["gpus"][:7])


def process(words: Words, holder: Json, node: str = NAMES[1]) -> None:
    words.of_nodes[node]["nvml"]["gpus"][3]["processes"] = [holder]


def others_gpus(words: Words) -> None:
    words.of_nodes[NAMES[1]]["nvml"]["gpus"] = [
        gpu(index, name="NVIDIA A100-SXM4-80GB", processes=[]) for index in range(8)
    ]


def ill(words: Words, daemon_set: str, container: Json, **changed: object) -> None:
    words.pod_of(daemon_set, NAMES[1]).update(ready=False, unready=[container], **changed)


def missing(words: Words, daemon_set: str) -> None:
    words.pods.remove(words.pod_of(daemon_set, NAMES[2]))


def job(words: Words, **changed: object) -> None:
    words.pods[-1].update(changed)


def kubelet(words: Words, number: int, **changed: object) -> None:
    """Change the report on one node's kubelet: `configured`, `in_force`, `changed`."""
    words.of_nodes[NAMES[number]]["kubelet"].update(changed)


def without_driver(words: Words, number: int, driver: str) -> None:
    words.storage["nodes"][number]["drivers"].remove(driver)


def unbound(words: Words, claim: Json, **of_pod: object) -> None:
    """A claim, and a pod that waits for it and for GPUs: for half an hour by default."""
    words.storage["claims"].append(claim)
    waits = {"created": HALF_AN_HOUR_AGO, "phase": "Pending", "accelerators": 8, "gates": 0, **of_pod}
    words.pods.append(pod("worker-9", "", volume_claims=[claim["name"]], **waits))
