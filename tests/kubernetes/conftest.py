"""One Kubernetes for all of these tests, with this machine for its node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed.kubernetes.bed import Bed, bed


@pytest.fixture(scope="session")
def kubernetes_bed() -> Iterator[Bed]:
    """Started once."""
    with bed() as kubernetes:
        yield kubernetes


@pytest.fixture
def kubernetes(kubernetes_bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """It, with an administrator's kubeconfig in the environment."""
    monkeypatch.setenv("KUBECONFIG", str(kubernetes_bed.plane.kubeconfig()))
    return kubernetes_bed
