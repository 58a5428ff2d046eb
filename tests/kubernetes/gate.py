"""The gate as its manifests install it: its account, its rights, and its writes to nodes."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.kubernetes.access import open_api
from clusterproof.plugins.kubernetes.api import MERGE, Api, KubernetesError
from clusterproof.plugins.kubernetes.gate import CONDITION, FALSE, TRUE, UNKNOWN, GateSettings, Health
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome, write
from tests.builders.runs import ROOT
from tests.counterparts import installed
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.nodes import Nodes
from tests.testbed.kubernetes.processes import wait_until

MANIFESTS = ROOT / "integrations" / "kubernetes"
ACCOUNT, AGENT = "clusterproof-gate", "clusterproof-agent"
WITH_GPUS = {"node.kubernetes.io/instance-type": "p5.48xlarge"}  # this machine does not have such GPUs
EVENTS = "/api/v1/namespaces/default/events"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
OVERLAY = """
resources: [base]
patches:
  - target: {kind: (DaemonSet|Deployment)}
    patch: |
      - {op: replace, path: /spec/template/spec/containers/0/image, value: "registry.example.com/clusterproof:0.1.0"}
  - target: {kind: Deployment}
    patch: |
      - {op: replace, path: /spec/replicas, value: 0}
  - target: {kind: DaemonSet}
    patch: |
      - {op: add, path: /spec/template/spec/nodeSelector, value: {nowhere: "yes"}}
"""  # named like an image; nothing runs
FIT = Health(TRUE, "ChecksPassed", "63 checks found no fault")
UNFIT = Health(FALSE, "GpuGpuCount", "gpu.gpu_count: NVML counts 7 GPUs; expected 8")
UNKNOWN_YET = Health(UNKNOWN, "Incomplete", "gpu.no_xid: the kernel log was not read; expected it")


@dataclass(frozen=True)
class GateBed:
    """A cluster with the gate installed and no pod of it running."""

    bed: Bed
    kubeconfig: Path  # of the gate's own account
    of_agent: Path  # of its agents' account

    def write(
        self,
        healths: Mapping[str, Health],
        orders: GateSettings | None = None,
        now: float = 0.0,
        began: float = 0.0,
        api: Api | None = None,
    ) -> WriteOutcome:
        """Write what a run with these findings writes, by the gate's account or another's `api`."""
        began = began or time.time() + 60  # nodes of tests are young
        return write(api or api_of(self.kubeconfig), orders or GateSettings(), healths, began, now or time.time())

    def node(self, name: str) -> dict[str, Any]:
        return self.bed.plane.call("GET", f"/api/v1/nodes/{name}")

    def condition(self, name: str, kind: str = CONDITION) -> dict[str, Any]:
        """The node's condition; empty if there is none."""
        conditions = [condition for condition in self.node(name)["status"]["conditions"] if condition["type"] == kind]
        return dict(conditions[0]) if conditions else {}

    def taints(self, name: str) -> list[dict[str, Any]]:
        """Taints set by somebody, without those that Kubernetes sets on nodes without a kubelet."""
        every = self.node(name)["spec"].get("taints", [])
        return [taint for taint in every if not taint["key"].startswith("node.kubernetes.io/")]

    def events(self, name: str) -> list[tuple[str, str]]:
        """Type and message of each event that the gate created, in order."""
        events = [event for event in self.bed.plane.items(EVENTS) if event["involvedObject"]["name"] == name]
        events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
        return [
            (event["type"], event["message"]) for event in events if event["source"].get("component") == "clusterproof"
        ]

    def left(self) -> list[str]:
        """What remains of runs, and of the gate beside its settings."""
        return [name for name in self.bed.left() if not name.startswith(f"configmaps/{ACCOUNT}-")]

    def refusal(self, path: str, body: object, kind: str = MERGE) -> str:
        """The server's refusal of a change by the gate's account; empty if it is accepted."""
        try:
            api_of(self.kubeconfig).patch(path, body, kind)
        except KubernetesError as refused:
            return str(refused)
        return ""


@contextlib.contextmanager
def as_with_gpus(bed: Bed) -> Iterator[str]:
    """Make the node with a kubelet one that should have GPUs; yields its name."""
    node = bed.machine
    bed.plane.patch(node.path, {"metadata": {"labels": WITH_GPUS}})
    try:
        yield node.name
    finally:
        bed.plane.patch(node.path, {"metadata": {"labels": dict.fromkeys(WITH_GPUS)}})


def api_of(kubeconfig: Path) -> Api:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KUBECONFIG", str(kubeconfig))
        return open_api({"kubernetes": "context:"})


def rights(kubeconfig: Path, namespace: str) -> set[tuple[str, str]]:
    """Verb and resource of everything an account may do there, beyond what everybody may ask about themselves."""
    review = {"spec": {"namespace": namespace}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    rules = api_of(kubeconfig).create(path, review)["status"]["resourceRules"]
    granted = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    return {(verb, resource) for verb, resource in granted if not resource.startswith("self")}


def kubectl(bed: Bed | Nodes, *arguments: str | Path) -> str:
    """Run kubectl as an administrator."""
    command = [
        installed.folder("kubectl") / "newest" / "bin" / "kubectl",
        "--kubeconfig",
        bed.plane.kubeconfig(),
        *arguments,
    ]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def gate_bed(bed: Bed, folder: Path) -> Iterator[GateBed]:
    """Apply the manifests as a user does, with the right to change taints; nothing of the gate remains."""
    copy = folder / "base"
    shutil.copytree(MANIFESTS, copy)
    text = (copy / "kustomization.yaml").read_text()
    assert "# - taints.yaml" in text
    (copy / "kustomization.yaml").write_text(text.replace("# - taints.yaml", "- taints.yaml"))
    (folder / "kustomization.yaml").write_text(OVERLAY)
    there = {config_map["metadata"]["name"] for config_map in bed.plane.items(CONFIG_MAPS)}
    kubectl(bed, "apply", "--kustomize", folder, "--validate=strict")
    try:
        tokens = [kubectl(bed, "create", "token", name, "--namespace", NAMESPACE) for name in (ACCOUNT, AGENT)]
        gate = GateBed(bed, *(bed.plane.kubeconfig(token.strip()) for token in tokens))
        with bed.node("on-trial"):
            wait_until(lambda: is_confined(gate, "on-trial"), "confined")
        yield gate
    finally:
        for name in ("gate.yaml", "agent.yaml", "confined.yaml", "taints.yaml"):
            kubectl(bed, "delete", "--ignore-not-found", "--filename", copy / name)
        for config_map in bed.plane.items(CONFIG_MAPS):
            if config_map["metadata"]["name"] not in there:
                bed.plane.call("DELETE", f"{CONFIG_MAPS}/{config_map['metadata']['name']}")


def is_confined(gate: GateBed, name: str) -> bool:
    """Whether the policy is in force: the API server needs some moments."""
    changed = {"metadata": {"labels": {"tried-at": str(time.monotonic_ns())}}}
    return "ValidatingAdmissionPolicy" in gate.refusal(f"/api/v1/nodes/{name}", changed)
