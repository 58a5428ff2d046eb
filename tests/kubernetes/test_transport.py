"""Nodes reached by pods: a real kubelet runs them on this machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.kubernetes.api import Api, KubernetesError
from clusterproof.reports.results import read_results
from tests.builders.probed import padded, reported
from tests.builders.runs import ROOT
from tests.kubernetes.programs import NODE, PODS, Meanwhile, answer_of, expire_jobs, run, shell
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
LINUX = "kubernetes.io/os=linux"
# What other tests and users of this machine may change from one minute to the next.
OF_THE_MOMENT = {
    *("host.cpu_steal", "host.d_state", "host.iowait", "host.job_leftovers", "host.zombies"),
    "storage.mounts_alive",  # theirs come and go
}


def validated(folder: Path, cluster: str) -> dict[str, str]:
    """The verdicts of a whole run of the command, by check."""
    arguments = ["-m", "pytest", str(ROOT / "checks"), "--cluster", cluster, "-m", "preflight and not control_plane"]
    timeouts = ["--connect-timeout", "60", "--probe-timeout", "20", "-p", "no:cacheprovider", "-q"]
    done = subprocess.run(
        [sys.executable, *arguments, *timeouts], cwd=folder, capture_output=True, text=True, check=False
    )
    (results,) = (folder / "runs").glob("*/*/results.jsonl")
    verdicts = {result.check: result.verdict.value for result in read_results(results)}
    assert "node.reachable" in verdicts, done.stdout + done.stderr
    return verdicts


def test_the_verdicts_are_those_of_a_local_run_on_the_same_machine(kubernetes: Bed, tmp_path: Path) -> None:
    (tmp_path / "pods").mkdir()
    (tmp_path / "local").mkdir()
    by_pod = validated(tmp_path / "pods", f"k8s:bed/{LINUX}")
    assert by_pod["node.reachable"] == by_pod["node.evidence_complete"] == "pass"
    local = validated(tmp_path / "local", "local")
    assert by_pod.keys() == local.keys()
    assert {check for check, verdict in local.items() if by_pod[check] != verdict} <= OF_THE_MOMENT
    assert kubernetes.left() == []


def test_the_program_is_root_on_the_host_and_not_in_its_own_environment(kubernetes: Bed) -> None:
    answer = answer_of(
        "id -u; readlink /proc/self/root; echo marker in $0; env; cat /proc/1/comm; pwd; "
        "echo ${NVIDIA_VISIBLE_DEVICES-no}"
    )
    lines = answer.output.decode().splitlines()
    assert answer.unreached is None
    assert lines[0] == "0"
    assert Path("/proc/1/comm").read_text().strip() in lines
    assert lines[-1] == "no"
    assert "marker in $0" not in answer.output.decode()
    assert not [line for line in lines if line.startswith("CLUSTERPROOF=")]


def on_the_host() -> list[set[Path]]:
    return [set(Path(folder).iterdir()) for folder in ("/", "/run", "/etc", "/root", "/var/lib")]


def test_nothing_is_created_on_the_host(kubernetes: Bed) -> None:
    before = on_the_host()
    assert answer_of("true").unreached is None
    assert on_the_host() == before


def test_two_requests_for_a_node_and_at_most_twelve_for_the_run(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, token = kubernetes.granted()
    monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
    assert answer_of("echo done").output == b"done\n"
    made = {
        str(request["auditID"]): f"{request['verb']} {request['objectRef']['resource']}"
        for request in kubernetes.plane.requests(user)
    }
    assert sorted(made.values()) == [
        "create configmaps",
        "create jobs",
        "create pods",
        "delete configmaps",
        "delete jobs",
        "deletecollection pods",
        "get pods",
        "list nodes",
        "list pods",
        "watch pods",
    ]


def test_the_program_is_stored_once_and_all_is_owned_by_the_job(kubernetes: Bed) -> None:
    with Meanwhile(kubernetes, "sleep 3") as meanwhile:
        meanwhile.pod()
        (pod,) = kubernetes.plane.items(PODS)
        kinds = sorted(name.partition("/")[0] for name in kubernetes.left())
    assert kinds == ["configmaps", "jobs", "pods"]
    assert "sleep 3" not in json.dumps(pod["spec"])
    assert [owner["kind"] for owner in pod["metadata"]["ownerReferences"]] == ["Job"]


@pytest.mark.parametrize("characters", [80_000, 300_000, 1_030_000])
def test_a_program_longer_than_an_argument_reaches_the_node_and_leaves_nothing(
    kubernetes: Bed, characters: int, tmp_path: Path
) -> None:
    evidence = reported("kubernetes", [Target(NODE)], [padded(tmp_path, characters)])[NODE]
    assert evidence.detail == ""
    assert evidence.collectors["padded"].value == characters
    assert kubernetes.left() == []


def test_an_answer_of_many_lines_comes_whole(kubernetes: Bed) -> None:
    answer = answer_of("seq 8000; sleep 2")  # a runtime may write the last lines after the container has ended
    assert answer.output.decode() == "".join(f"{number}\n" for number in range(1, 8001))


def test_a_long_line_comes_whole(kubernetes: Bed) -> None:
    assert answer_of('head -c 300000 /dev/zero | tr "\\\\0" x; echo').output == b"x" * 300000 + b"\n"


def test_an_answer_is_read_only_so_far(kubernetes: Bed) -> None:
    assert len(answer_of("seq 8000", answer_bytes=1000).output) == 1000


def test_a_cut_watch_is_begun_anew(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.pod_watch.WATCH_S", 1.0)
    assert answer_of("sleep 4; echo done").output == b"done\n"


def test_nothing_is_left_after_a_run_that_is_interrupted(kubernetes: Bed) -> None:
    client = in_a_process("sleep 300")
    wait_until(lambda: any(name.startswith("pods/") for name in kubernetes.left()), "a pod")
    client.send_signal(signal.SIGINT)
    assert client.wait(60) != 0
    wait_until(lambda: not kubernetes.left(), "clean")


def test_after_sigkill_kubernetes_itself_clears_all_away(kubernetes: Bed) -> None:
    client = in_a_process("sleep 300")
    wait_until(lambda: any(pod["status"].get("phase") == "Running" for pod in kubernetes.plane.items(PODS)), "running")
    client.kill()
    client.wait()
    assert {name.partition("/")[0] for name in kubernetes.left()} == {"pods", "jobs", "configmaps"}
    expire_jobs(kubernetes.plane)
    wait_until(lambda: not kubernetes.left(), "cleared away")


def in_a_process(script: str) -> subprocess.Popen[bytes]:
    """A separate client."""
    code = f"from tests.kubernetes.programs import *; run(shell({script!r}), answer_s=300, connect_s=600)"
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.DEVNULL)


def test_other_nodes_answer_while_one_does_not(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.kubernetes.visit.MIN_START_S", 10.0)
    with kubernetes.node("gpu002", images=[{"names": ["x/kube-proxy:1"], "sizeBytes": 1}]):
        answers = run(shell("echo done"), NODE, "gpu002", "gpu003", connect_s=0.1)
    assert answers[NODE].output == b"done\n"
    assert answers["gpu002"].unreached is Unreached.NOT_STARTED
    assert answers["gpu003"].unreached is Unreached.NOT_READY
    assert kubernetes.left() == []


def test_after_a_410_the_watch_is_begun_anew(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Api.watch
    raised: list[int] = []

    def expired_once(api: Api, path: str, timeout_s: float, **query: object) -> Iterator[tuple[str, Any]]:
        if not raised:
            raised.append(410)  # a server that was just started never says this
            raise KubernetesError("410 Expired: too old resource version: 1 (7)", 410, "Expired")
        yield from watch(api, path, timeout_s, **query)

    monkeypatch.setattr(Api, "watch", expired_once)
    assert answer_of("sleep 2; echo done").output == b"done\n"
    assert raised == [410]
