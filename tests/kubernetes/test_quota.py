"""A pod quota reached in the middle of a run: nodes wait for their turn, and collected evidence is kept."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Limits
from clusterproof.plugins.transport.kubernetes.connection import Kubernetes
from tests.kubernetes.kubelets import LOG_BYTES, kubelets
from tests.kubernetes.programs import run, shell
from tests.testbed.kubernetes.bed import NAMESPACE, Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
QUOTAS = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
MANY = [f"many{number:02d}" for number in range(12)]


@contextlib.contextmanager
def quota(kubernetes: Bed, kind: str, most: int) -> Iterator[None]:
    """Limit the namespace to this many pods for the block."""
    kubernetes.plane.call("POST", QUOTAS, {"metadata": {"name": "few"}, "spec": {"hard": {kind: str(most)}}})
    try:
        wait_until(lambda: "hard" in kubernetes.plane.items(QUOTAS)[0].get("status", {}), "counted")
        yield
    finally:
        kubernetes.plane.call("DELETE", f"{QUOTAS}/few")


@pytest.mark.parametrize("kind", ["pods", "count/pods"])
def test_every_node_has_its_turn_where_a_quota_admits_fewer_pods_than_nodes(kubernetes: Bed, kind: str) -> None:
    with kubelets(kubernetes, MANY), quota(kubernetes, kind, 3):
        answers = run(shell("true"), *MANY)
        wait_until(lambda: not kubernetes.left(), "clean")
    assert {name: answer.detail for name, answer in answers.items() if answer.unreached} == {}
    assert {len(answers[name].output) for name in MANY} == {LOG_BYTES}


def test_what_was_collected_is_kept_where_no_place_comes_back(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.visit.COUNTED_S", 0.0)
    answers: dict[str, Answer] = {}

    def answered(target: Target, answer: Answer) -> None:
        if not answers:
            kubernetes.plane.patch(f"{QUOTAS}/few", {"spec": {"hard": {"pods": "0"}}})
        answers[target.name] = answer

    with kubelets(kubernetes, MANY), quota(kubernetes, "pods", 2):
        targets = [Target(name) for name in MANY]
        Kubernetes().run(targets, shell("true"), Limits(connect_s=60, answer_s=60), answered)
    kept = [name for name in MANY if answers[name].output]
    left = {answers[name].detail for name in MANY if name not in kept}
    assert 1 <= len(kept) < len(MANY)
    assert {answers[name].unreached for name in MANY if name not in kept} == {Unreached.API}
    assert [detail for detail in left if "exceeded quota: few" not in detail] == []  # of one attempt or two
