"""A watch of Kubernetes nodes: a pod on each samples throughout, and ends with the watch."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Limits, Program, Unusable
from clusterproof.plugins.transport.kubernetes.sessions import PodSessions
from tests.builders.runs import ROOT
from tests.kubernetes.programs import JOBS, NODE, PODS
from tests.kubernetes.watched import command, samplers, watched
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
SHORT_S = 6  # lifetime of what nobody renews
LINES = 16_000
CHATTY = f"""import sys, time
for number in range({LINES}):
    print(number, "x" * 200, flush=True)
    time.sleep(0.0003)
"""


def test_one_job_owns_all_for_as_long_as_somebody_watches_and_visits_go_on_beside_it(
    kubernetes: Bed, tmp_path: Path
) -> None:
    seen = tmp_path / "nodes" / f"{NODE}.json"
    with watched([NODE], record=tmp_path, k8s_ttl_s=str(SHORT_S)) as watch:
        watch.until_sampled(NODE)
        # Again, if this machine was so busy that the visit's Job outlived its short time.
        watch.until(lambda: seen.exists() or watch.controller._visit([NODE]), "a visit")
        first = seen.stat().st_mtime_ns
        (job,) = kubernetes.plane.items(JOBS)
        (pod,) = kubernetes.plane.items(PODS)
        assert [owner["uid"] for owner in pod["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]
        assert pod["spec"]["activeDeadlineSeconds"] <= 6 * 3600
        assert len(json.dumps(pod["spec"]["containers"][0]["command"])) < 2000  # the program is stored once

        first_pods: dict[str, str] = {}
        wait_until(lambda: has_kept_its_pod(kubernetes, first_pods), "put off, with the pod that it began with")
        (job,) = kubernetes.plane.items(JOBS)
        kubernetes.plane.call("DELETE", f"{JOBS}/{job['metadata']['name']}?propagationPolicy=Background")
        wait_until(lambda: job["metadata"]["uid"] not in uids(kubernetes) and uids(kubernetes), "another Job")
        watch.until_sampled(NODE)
        # As every hour.
        watch.until(lambda: seen.stat().st_mtime_ns > first or watch.controller._visit([NODE]), "another visit")
    wait_until(lambda: not kubernetes.left(), "clean")


def uids(kubernetes: Bed) -> list[str]:
    return [str(job["metadata"]["uid"]) for job in kubernetes.plane.items(JOBS)]


def has_kept_its_pod(kubernetes: Bed, first_pods: dict[str, str]) -> bool:
    """Whether a Job's end was put off and it has the pod with which it was first seen.

    On a busy machine a Job may end before it is put off, and another takes its place.
    """
    pods = {
        pod["metadata"]["ownerReferences"][0]["uid"]: pod["metadata"]["uid"] for pod in kubernetes.plane.items(PODS)
    }
    first_pods.update({**pods, **first_pods})
    put_off = [
        job["metadata"]["uid"]
        for job in kubernetes.plane.items(JOBS)
        if int(job["spec"]["ttlSecondsAfterFinished"]) > 2 * SHORT_S  # from its start
    ]
    return any(job in pods and pods[job] == first_pods[job] for job in put_off)


def staying(kubernetes: Bed) -> bool:
    """Whether a pod other than a visit's runs."""
    pods = [pod for pod in kubernetes.plane.items(PODS) if pod["spec"]["activeDeadlineSeconds"] > 3600]
    return any(pod["status"].get("phase") == "Running" for pod in pods)


def test_after_sigkill_kubernetes_ends_the_pods_itself(kubernetes: Bed) -> None:
    code = (
        f"from tests.kubernetes.watched import *\nimport time\n"
        f"with watched([{NODE!r}], k8s_ttl_s='{SHORT_S}'): time.sleep(600)"
    )
    client = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_until(lambda: staying(kubernetes), "a pod that stays")
    client.kill()
    client.wait()
    wait_until(lambda: not kubernetes.left(), "cleared away")
    wait_until(lambda: not samplers(kubernetes.machine), "without a sampler")


def test_sigterm_leaves_nothing(kubernetes: Bed, tmp_path: Path) -> None:
    out = tmp_path / "out"
    client = command(out, "--cluster", "k8s:bed/kubernetes.io/os=linux")
    wait_until(lambda: staying(kubernetes), "a pod that stays")
    client.send_signal(signal.SIGTERM)
    assert client.wait(60) in (0, 1, 10), out.read_text()
    assert "watched for" in out.read_text()
    assert kubernetes.left() == []
    wait_until(lambda: not samplers(kubernetes.machine), "without a sampler")


def test_a_log_that_is_rotated_is_followed_into_its_next_file(kubernetes: Bed) -> None:
    sessions, written, rotated = PodSessions(Limits(connect_s=60.0)), bytearray(), set[Path]()

    def received(piece: bytes) -> None:
        written.extend(piece)
        with suppress(FileNotFoundError):  # the pod has just been removed
            rotated.update((kubernetes.machine.folder / "logs").glob("*/*/*.log.*"))

    sessions.open(CHATTY)
    try:
        why = sessions.on_node(print).run(Target(NODE), Program("python3 -u -", CHATTY.encode()), received, 60.0)
    finally:
        sessions.close()
    assert why == "the program ended"
    numbers = [int(line.split()[0]) for line in written.splitlines()]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (0, LINES - 1)
    assert rotated  # the testbed's kubelet limits logs to 1 MiB
    assert len(numbers) > 0.9 * LINES  # a kubelet skips what is written between its last read and a rotation
    assert sum(later - earlier > 1 for earlier, later in pairwise(numbers)) <= len(rotated)


def test_whoever_may_not_keep_the_job_gets_an_error_and_nothing_is_left(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, token = kubernetes.granted(without=("patch", "jobs"))
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    with pytest.raises(Unusable, match=r'cannot patch resource "jobs" .*; integrations/kubernetes/rbac.yaml grants'):
        PodSessions(Limits()).open("")
    assert kubernetes.left() == []
