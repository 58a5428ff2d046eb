"""One Kubernetes for all of these tests, with this machine as its node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.gate import GateBed, gate_bed
from tests.kubernetes.perf import DEVICES, GROUP, give_gpus, give_images
from tests.testbed.kubernetes.bed import Bed, bed
from tests.testbed.kubernetes.nodes import Nodes, nodes


@pytest.fixture(scope="package")
def kubernetes_bed() -> Iterator[Bed]:
    """Started once, and ended before other folders' tests."""
    with bed() as kubernetes:
        yield kubernetes


@pytest.fixture
def kubernetes(kubernetes_bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """The same, with an administrator's kubeconfig in the environment."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_bed.plane.kubeconfig()))
    return kubernetes_bed


@pytest.fixture(scope="module")
def gate(kubernetes_bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateBed]:
    """The same, with the gate installed by its manifests."""
    with gate_bed(kubernetes_bed, tmp_path_factory.mktemp("gate")) as installed:
        yield installed


@pytest.fixture(scope="package")
def perf_bed() -> Iterator[Nodes]:
    """Three nodes with GPUs, and a scheduler; started once."""
    with nodes(GROUP, DEVICES) as bed:
        with bed.joined():
            give_gpus(bed)
        give_images(bed)
        yield bed


@pytest.fixture
def perf(perf_bed: Nodes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    """The same, with an administrator's kubeconfig in the environment; the test is on their network."""
    monkeypatch.setenv("KUBECONFIG", str(perf_bed.plane.kubeconfig()))
    with perf_bed.joined():
        yield perf_bed
