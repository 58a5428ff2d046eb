"""Nodes by pods: a real kubelet runs them, on this machine."""

from __future__ import annotations

from collections import Counter

import pytest

from clusterproof.plugins.agent.options import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Status
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.gather import gather
from clusterproof.plugins.transport.kubernetes import Kubernetes
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes


def asked(*names: str, limits: Limits | None = None, collectors: tuple[str, ...] = ("boot",)) -> dict[str, NodeEvidence]:
    cluster = Cluster("k8s:bed", "kubernetes", tuple(map(Target, names)))
    patient = limits or Limits(connect_s=60, answer_s=60)
    return gather(cluster, Kubernetes(), collectors, ProbeOptions(collector_s=20), patient, lambda _: None)


def test_a_node_answers_by_a_pod_and_nothing_is_left(kubernetes: Bed) -> None:
    evidence = asked("gpu001", collectors=("boot", "platform"))["gpu001"]
    assert evidence.unreached is None, evidence.detail
    assert {name: one.status for name, one in evidence.collectors.items()} == {
        "boot": Status.TOLD,
        "platform": Status.TOLD,
    }
    assert evidence.probe["uid"] == 0
    assert kubernetes.left() == []
