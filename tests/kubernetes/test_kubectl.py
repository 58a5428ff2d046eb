"""The kubectl commands in findings, remedies and documents, run as typed."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.catalog.node import unreached_rows
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.kubernetes.api import KubernetesRefused
from clusterproof.plugins.transport.kubernetes.outcome import refused
from tests.builders.runs import ROOT
from tests.counterparts import installed
from tests.kubernetes.extensions import kueue, served
from tests.kubernetes.gate import GateBed
from tests.kubernetes.programs import NODE
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.machine import SANDBOX
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = [needs_kubernetes, installed.needs("kubectl")]
VERSIONS = sorted(
    line.split()[0].partition("==")[2]
    for line in (ROOT / "tests/counterparts/kubectl/versions").read_text().splitlines()
)
OF_REMEDIES = re.compile(r"\((kubectl [^()]+)\)")
OF_DOCUMENTS = re.compile(r"^ {4,}(?:\$ )?(kubectl .+)$|`(kubectl [^`]+)`", re.MULTILINE)
DOCUMENTS = ("docs/kubernetes.md", "docs/kubernetes-gate.md")
# Replacements for placeholders, with names that exist.
POD, CLAIM, KEY = "asked", "wanted", "site/hold"
THERE = {"NODE": NODE, "NAMESPACE": NAMESPACE, "POD": POD, "CLAIM": CLAIM, "KEY": KEY, "YOU": "you"}
THERE |= {"LABELS": "kubernetes.io/os=linux", "gpu003": NODE}
CHANGES = re.compile(r"^(kubectl (?:create \w+|apply|delete|label|taint|uncordon))\b")
PROSE = ("kubectl", "kubectl logs")
# Commands with images that do not exist or lack tar, and for objects that exist already.
NOT_HERE = (
    "kubectl cp",
    "deployment/clusterproof-gate",
    "apply -k integrations/kubernetes",
    "create namespace clusterproof",
)
UNFIT = {"key": "clusterproof.dev/unfit", "effect": "NoSchedule"}


def commands() -> Iterator[str]:
    """Each command once."""
    found_commands = [part.strip() for check in all_checks().values() for part in check.route.evidence.split("; ")]
    remedies = [check.route.remedy for check in all_checks().values()]
    remedies += [row.remedy for row in unreached_rows().values()]
    found_commands += [match for remedy in remedies for match in OF_REMEDIES.findall(remedy)]
    texts = [(ROOT / document).read_text() for document in DOCUMENTS]
    found_commands += [kubectl or other for text in texts for kubectl, other in OF_DOCUMENTS.findall(text)]
    found_commands += re.findall(r"kubectl label .+", refused(KubernetesRefused("no"), NAMESPACE))
    takes_pods = all_checks()["control_plane.k8s_node_takes_pods"].route.remedy
    found_commands += re.findall(r"kubectl uncordon NODE|kubectl taint node NODE KEY-", takes_pods)
    for command in dict.fromkeys(found_commands):
        if command.startswith("kubectl ") and command not in PROSE and not any(word in command for word in NOT_HERE):
            yield re.sub(r"\b(" + "|".join(THERE) + r")\b", lambda match: THERE[match[0]], command)


@pytest.fixture(scope="module")
def with_names(kubernetes_bed: Bed, gate: GateBed) -> Iterator[Bed]:
    """The objects that the commands name: a pod that ended once, a claim, taints, the gate, a schedule, Kueue kinds."""
    plane, node = kubernetes_bed.plane, f"/api/v1/nodes/{NODE}"
    claims, pods = (f"/api/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("persistentvolumeclaims", "pods"))
    schedules = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs"
    dies = {"livenessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 1, "failureThreshold": 1}}
    container = {"name": "main", "image": SANDBOX, "imagePullPolicy": "Never", **dies}
    spec = {"containers": [container], "nodeName": NODE, "hostNetwork": True, "terminationGracePeriodSeconds": 0}
    of_job = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "load", "image": SANDBOX}]}}}
    of_schedule = {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": {"spec": of_job}}
    of_claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    with contextlib.ExitStack() as stack:
        created = (claims, CLAIM, of_claim), (pods, POD, spec), (schedules, "clusterproof-load", of_schedule)
        for path, name, of_object in created:
            plane.call("POST", path, {"metadata": {"name": name}, "spec": of_object})
            stack.callback(plane.call, "DELETE", f"{path}/{name}?gracePeriodSeconds=0")
        plane.patch(node, {"spec": {"taints": [UNFIT, {**UNFIT, "key": KEY}]}})
        stack.callback(plane.patch, node, {"spec": {"taints": None}})
        stack.enter_context(kueue(kubernetes_bed, resourceflavors=[], topologies=[]))
        domains = {"computedomains": "ComputeDomain"}
        stack.enter_context(served(kubernetes_bed, "resource.nvidia.com", domains, "Namespaced"))
        wait_until(lambda: _has_ended(plane.call("GET", f"{pods}/{POD}")), "ended, and begun again")
        yield kubernetes_bed


def _has_ended(pod: Mapping[str, Any]) -> bool:
    return any("terminated" in status["lastState"] for status in pod["status"].get("containerStatuses", ()))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("with_names")
def test_what_people_are_told_to_type_is_understood(kubernetes: Bed, version: str, tmp_path: Path) -> None:
    path = f"{installed.folder('kubectl') / version / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path), "EDITOR": "true"}
    wrong = {}
    for command in commands():
        changed = CHANGES.sub(r"\1 --dry-run=server", command)
        done = subprocess.run(
            changed, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        if done.returncode or done.stderr.startswith(("error", "Flag")):
            wrong[changed] = done.stderr
    assert not wrong


def test_there_are_commands_to_type() -> None:
    assert len(list(commands())) > 30
