"""Many nodes: a real API server with simulated kubelets."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.kubernetes.kubelets import LOG_BYTES, Log, kubelets
from tests.kubernetes.programs import run, shell
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes


def test_each_node_has_its_own_answer_by_two_requests_and_the_run_needs_few(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"many{number:03d}" for number in range(100)]
    user, token = kubernetes.granted()
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    with kubelets(kubernetes, names):
        answers = run(shell("true"), *names)
        wait_until(lambda: not kubernetes.left(), "clean")
    assert [answers[name].detail for name in names if answers[name].unreached] == []
    assert {len(answers[name].output) for name in names} == {LOG_BYTES}
    assert len({answers[name].output for name in names}) == len(names)
    made = {
        request["auditID"]: f"{request['verb']} {request['requestURI'].partition('?')[0]}"
        for request in kubernetes.plane.requests(user)
    }
    kinds = Counter("log" if path.endswith("/log") else path.rpartition("/")[0] for path in made.values())
    assert kinds["log"] == 100
    assert sum(kinds.values()) <= 2 * 100 + 12


@pytest.mark.parametrize("late", [[0], [0, 8192], [LOG_BYTES]])
def test_a_log_that_its_node_has_not_written_whole_is_read_again(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, late: list[int]
) -> None:
    monkeypatch.setattr(Log, "late", late)  # as containerd behaves on a busy disk, long after the pod Succeeded
    with kubelets(kubernetes, ["many000"]):
        answer = run(shell("true"), "many000")["many000"]
    assert (answer.unreached, len(answer.output), late) == (None, LOG_BYTES, [])


def test_a_log_whose_end_never_comes_is_read_so_often_and_kept(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = [8192] * 100
    monkeypatch.setattr(Log, "late", late)
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.visit.LOG_END_S", 0.5)
    with kubelets(kubernetes, ["many000"]):
        answer = run(shell("true"), "many000")["many000"]
    assert (answer.unreached, len(answer.output)) == (None, 8192)
    assert 90 < len(late) < 100
