"""A real kubelet's policies, as the collector reads them on its node."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.kubernetes.collect_kubelet import of_process, read
from clusterproof.plugins.evidence.kubernetes.facts import DEFAULTS, Kubelet
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.machine import Machine
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort"}
OF_A_KUBELET = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}


def kubelet_of(pid: int) -> Kubelet:
    value: Any = of_process(Node(), str(pid))
    return Kubelet(value)


def used_by(machine: Machine) -> Mapping[str, str]:
    """The configuration as the kubelet itself returns it to a fully authorised client."""
    context = ssl._create_unverified_context()  # its certificate is self-made
    with urllib.request.urlopen(f"https://127.0.0.1:{machine.kubelet_port}/configz", context=context) as answer:
        configuration: Mapping[str, str] = json.load(answer)["kubeletconfig"]
    return configuration


def policies(kubelet: Kubelet) -> dict[str, str]:
    return {key: kubelet.policy(key) for key in DEFAULTS}


def test_a_kubelet_that_nobody_configures_keeps_the_defaults(kubernetes: Bed) -> None:
    assert kubernetes.machine.kubelet
    kubelet = kubelet_of(kubernetes.machine.kubelet.process.pid)
    assert kubelet.configured == {}
    assert kubelet.in_force == {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}
    assert policies(kubelet) == DEFAULTS


@pytest.mark.usefixtures("kubernetes")
def test_a_kubelet_is_found_among_the_processes_of_its_machine() -> None:
    evidence = read(Node())  # the first, if parallel tests have others
    assert isinstance(evidence, dict)
    assert set(evidence) == {"configured", "changed", "in_force"}


def test_flags_count_before_further_files_and_those_before_the_first(kubernetes: Bed, tmp_path: Path) -> None:
    further = {"topologyManagerPolicy": "restricted", "topologyManagerScope": "container"}
    (tmp_path / "10-site.conf").write_text(yaml.safe_dump({**OF_A_KUBELET, **further}))
    (tmp_path / "20-off.yaml").write_text(yaml.safe_dump({**OF_A_KUBELET, "topologyManagerPolicy": "none"}))
    flags = ("--topology-manager-scope=pod", "--config-dir", str(tmp_path))
    with kubernetes.machine.configured(*flags, **STATIC) as pid:
        kubelet = kubelet_of(pid)
        in_use = used_by(kubernetes.machine)
    assert policies(kubelet) == {key: in_use[key] for key in DEFAULTS}
    assert policies(kubelet) == {
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "None",
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "pod",
    }
    assert kubelet.changed == ()


def test_a_file_that_changed_since_is_no_evidence_and_what_the_kubelet_keeps_is(kubernetes: Bed) -> None:
    file = kubernetes.machine.folder / "kubelet.json"
    with kubernetes.machine.configured() as pid:
        file.write_text(yaml.safe_dump({**OF_A_KUBELET, **STATIC}))
        soon = file.stat().st_mtime + 60  # later than the kubelet's start, however soon after it
        os.utime(file, (soon, soon))
        kubelet = kubelet_of(pid)
    assert list(kubelet.overtaken) == [("cpuManagerPolicy", "none", "static")]
    assert kubelet.policy("cpuManagerPolicy") == "none"
    with pytest.raises(Incomplete, match=r"kubelet\.json changed after the kubelet started"):
        kubelet.policy("topologyManagerPolicy")
