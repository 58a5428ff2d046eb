"""Nodes with kwok's kubelets, from inventory to log; `make bench` has a thousand."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterproof.plugins.inventory import resolve
from tests.kubernetes.programs import END, run, shell
from tests.testbed.kubernetes.bed import NAMESPACE
from tests.testbed.kubernetes.control_plane import ControlPlane
from tests.testbed.kubernetes.kwok import kwok_cluster, log
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
NAMES = [f"gpu{number:03d}" for number in range(1, 25)]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="k8s-") as folder, kwok_cluster(Path(folder), NAMES, END) as started:
        yield started


def test_all_nodes_are_found_visited_and_read_and_nothing_is_left(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig()))
    cluster = resolve("k8s:bed")
    assert [(target.name, target.group, target.instance_type) for target in cluster.targets] == [
        (name, "train", "p5.48xlarge") for name in NAMES
    ]
    answers = run(shell("true"), *NAMES)
    assert {name: (answer.unreached, answer.output) for name, answer in answers.items()} == dict.fromkeys(
        NAMES, (None, log())
    )
    wait_until(lambda: not plane.items(f"/api/v1/namespaces/{NAMESPACE}/pods"), "clean")
