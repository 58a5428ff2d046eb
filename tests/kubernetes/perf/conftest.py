"""One Kubernetes with three nodes for all measurements by pods."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes.perf import DEVICES, GROUP, give_gpus, give_images
from tests.testbed.kubernetes.nodes import Nodes, nodes


@pytest.fixture(scope="package")
def perf_bed() -> Iterator[Nodes]:
    """Three nodes with GPUs, and a scheduler; started once, and ended before other folders' tests."""
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
