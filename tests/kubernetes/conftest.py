"""One Kubernetes for all of these tests, with this machine as its node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.gate import GateBed, gate_bed
from tests.testbed.kubernetes.bed import Bed, bed


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
