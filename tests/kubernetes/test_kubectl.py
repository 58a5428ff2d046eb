"""The commands of kubectl that findings, remedies and documents tell people to type, typed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.catalog.unreached import unreached_rows
from clusterproof.plugins.kubernetes.api import KubernetesRefused
from clusterproof.plugins.suite.all_checks import all_checks
from clusterproof.plugins.transport.kubernetes_outcome import refused
from clusterproof.plugins.transport.kubernetes_pod import Run
from tests.builders.runs import ROOT
from tests.counterparts import installed
from tests.kubernetes.programs import NODE
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.needs import needs_kubernetes

pytestmark = [needs_kubernetes, installed.needs("kubectl")]
VERSIONS = sorted(
    line.split()[0].partition("==")[2]
    for line in (ROOT / "tests/counterparts/kubectl/versions").read_text().splitlines()
)
OF_REMEDIES = re.compile(r"\((kubectl [^()]+)\)")
OF_DOCUMENTS = re.compile(r"^ {4}(kubectl .+)$|`(kubectl [^`]+)`", re.MULTILINE)
# What stands for a name, and what is there.
THERE = {"NODE": NODE, "NAMESPACE": NAMESPACE, "POD": "asked", "YOU": "you", "LABELS": "kubernetes.io/os=linux"}
CHANGES = re.compile(r"^(kubectl (?:create \w+|apply|label|uncordon))\b")
NOT_HERE = ("resourceflavors", "kubectl logs")  # Kueue's; a word of prose, and a pod that never ran


def commands() -> Iterator[str]:
    """Each command once."""
    told = [part.strip() for check in all_checks().values() for part in check.route.evidence.split("; ")]
    remedies = [check.route.remedy for check in all_checks().values()]
    remedies += [row.remedy for row in unreached_rows().values()]
    told += [found for remedy in remedies for found in OF_REMEDIES.findall(remedy)]
    told += [one or other for one, other in OF_DOCUMENTS.findall((ROOT / "docs/kubernetes.md").read_text())]
    told += re.findall(r"kubectl label .+", refused(KubernetesRefused("no"), Run("run", NAMESPACE)))
    told += re.findall(r"kubectl uncordon NODE", all_checks()["control_plane.k8s_node_takes_pods"].route.remedy)
    for command in dict.fromkeys(told):
        if command.startswith("kubectl ") and not any(word in command for word in NOT_HERE):
            yield re.sub(r"\b(" + "|".join(THERE) + r")\b", lambda found: THERE[found[0]], command)


@pytest.fixture
def with_a_pod(kubernetes: Bed) -> Iterator[Bed]:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    spec = {"containers": [{"name": "main", "image": "localhost/none:1"}], "schedulerName": "nobody"}
    kubernetes.plane.call("POST", path, {"metadata": {"name": "asked"}, "spec": spec})
    yield kubernetes
    kubernetes.plane.call("DELETE", f"{path}/asked?gracePeriodSeconds=0")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("with_a_pod")
def test_what_people_are_told_to_type_is_understood(version: str, tmp_path: Path) -> None:
    path = f"{installed.folder('kubectl') / version / 'bin'}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(tmp_path)}
    wrong = {}
    for command in commands():
        words = CHANGES.sub(r"\1 --dry-run=server", command)
        done = subprocess.run(
            words, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode or done.stderr.startswith(("error", "Flag")):
            wrong[words] = done.stderr
    assert not wrong


def test_there_are_commands_to_type() -> None:
    assert len(list(commands())) > 20
