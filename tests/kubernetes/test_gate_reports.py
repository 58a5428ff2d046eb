"""How the gate reads an agent's log: a node's words, fetched from a real API server and decoded strictly."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Status, Unreached
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.kubernetes.api import ASKED
from clusterproof.plugins.kubernetes.nodes import node_of
from clusterproof.plugins.kubernetes.pods import pod_of
from clusterproof.plugins.transport import Limits, Unusable
from clusterproof.plugins.transport.gather import gather
from clusterproof.plugins.transport.kubernetes.agents import (
    REPORT,
    Agents,
    by_node,
    unreported,
)
from clusterproof.plugins.transport.kubernetes.report_cache import ReportCache
from tests.builders.evaluated import among
from tests.kubernetes.agents import LABELS, STARTED, agent, agents, ready, report
from tests.kubernetes.kubelets import Log
from tests.kubernetes.programs import PODS
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
PULLED_NOT = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
TWO = (("a", "2026-01-02T00:00:09Z"), ("b", "2026-01-02T00:00:04Z"))
AGAIN = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}


def read(*names: str, **settings: str) -> dict[str, NodeEvidence]:
    cluster = Cluster("bed", "agents", tuple(map(Target, names)))
    return gather(cluster, Agents(), ["boot"], ProbeOptions(), Limits(settings=settings), lambda evidence: evidence)


@pytest.mark.parametrize(
    ("log", "boot"),
    [
        (report("one"), "one"),
        (report("one") + report("two"), "two"),
        (report("one") + report("two")[:-30], "one"),
        (report("one")[60:] + report("two"), "two"),
        ("warning: of a library\n" + report("one") + "no report: timed_out\n", "one"),
    ],
    ids=["one", "the last of two", "one that is still written", "one that a rotation has cut", "among other words"],
)
def test_the_last_whole_report_is_what_a_node_says(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, log: str, boot: str
) -> None:
    monkeypatch.setattr(Log, "written", log.encode())
    with agents(kubernetes, STARTED, "many001"):
        evidence = read("many001")["many001"]
    assert (evidence.unreached, evidence.detail) == (None, "")
    assert evidence.collectors["boot"].status is Status.READ
    assert evidence.collectors["boot"].value == {"id": boot}


def boots(*names: str, keep: Path) -> list[object]:
    """Each node's reported boot, for a gate that keeps what it read."""
    evidence = read(*names, k8s_keep=str(keep))
    return [evidence[name].collectors["boot"].value for name in names]


def test_a_log_is_read_again_where_an_agent_was_unready_and_no_other(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("many001", "many002")
    with agents(kubernetes, STARTED, *names):
        monkeypatch.setattr(Log, "written", report("one").encode())
        first = boots(*names, keep=tmp_path)
        monkeypatch.setattr(Log, "written", report("two").encode())
        requests = ASKED.copy()
        in_rest = boots(*names, keep=tmp_path)
        requests = ASKED - requests
        pod = next(
            pod_of_node for pod_of_node in kubernetes.plane.items(PODS) if pod_of_node["spec"]["nodeName"] == "many002"
        )
        status = {"status": {"conditions": [ready("2026-01-02T04:00:00Z", "False")]}}
        kubernetes.plane.patch(f"{PODS}/{pod['metadata']['name']}/status", status)
        changed = boots(*names, keep=tmp_path)
    assert (first, in_rest) == ([{"id": "one"}] * 2, [{"id": "one"}] * 2)
    assert changed == [{"id": "one"}, {"id": "two"}]
    assert requests == {"GET 200": 2}  # pods and their DaemonSet


def test_all_logs_are_read_anew_where_a_node_fails_only_beside_others(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = ("many001", "many002")
    with agents(kubernetes, STARTED, *names):
        monkeypatch.setattr(Log, "written", report("one").encode())
        boots(*names, keep=tmp_path)
        monkeypatch.setattr(Log, "written", report("two").encode())
        ReportCache(str(tmp_path)).unconfirmed(["many002"], time.time(), names)
        anew = boots(*names, keep=tmp_path)
        ReportCache(str(tmp_path)).unconfirmed(["many002"], time.time(), names)
        monkeypatch.setattr(Log, "written", report("three").encode())
        in_rest = boots(*names, keep=tmp_path)
    assert (anew, in_rest) == ([{"id": "two"}] * 2, [{"id": "two"}] * 2)


@pytest.mark.parametrize(("ago_s", "apart_s"), [(5.0, 0.0), (140.0, 0.0), (-60.0, 60.0), (3600.0, -3450.0)])
def test_a_report_may_be_as_old_as_it_is_read_and_its_clock_is_not_blamed_for_that(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, ago_s: float, apart_s: float
) -> None:
    monkeypatch.setattr(Log, "written", report("one", time.time() - ago_s).encode())
    with agents(kubernetes, STARTED, "many001"):
        apart = float(among(read("many001")["many001"]).clock_apart_s)
    assert apart == pytest.approx(apart_s, abs=30.0)
    assert (apart == 0) is (apart_s == 0)


@pytest.mark.parametrize(
    ("log", "unreached", "words"),
    [
        (b"x", Unreached.NOT_STARTED, "its agent reported nothing within 105 s; its last words: x"),
        (b"no\x1b[31m report: cut", Unreached.NOT_STARTED, "no\x1b[31m report: cut"),
        (report("one")[:-30].encode(), Unreached.NOT_STARTED, "its agent reported nothing within 105 s"),
        (report("one").replace(f"{REPORT}:0:", f"{REPORT}:7:").encode(), Unreached.GARBLED, "of the frame's"),
        ((report("one") + report("two").replace("begin", "x")).encode(), Unreached.GARBLED, "more than one frame"),
    ],
)
def test_what_is_no_report_is_a_node_that_was_not_reached(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch, log: bytes, unreached: Unreached, words: str
) -> None:
    monkeypatch.setattr(Log, "written", log)
    with agents(kubernetes, STARTED, "many001"):
        evidence = read("many001")["many001"]
    assert evidence.unreached is unreached
    assert words in evidence.detail


@pytest.mark.parametrize(
    ("state", "unreached", "words"),
    [
        (PULLED_NOT, Unreached.NO_IMAGE, "its agent does not run: ErrImagePull no such image"),
        (AGAIN, Unreached.NOT_STARTED, "its agent does not run: CrashLoopBackOff back-off 10s"),
    ],
)
def test_an_agent_that_does_not_run_is_reported_in_the_kubelets_words(
    kubernetes: Bed, state: dict[str, Any], unreached: Unreached, words: str
) -> None:
    with agents(kubernetes, state, "many001"):
        evidence = read("many001", "many002")
    assert evidence["many001"].unreached is unreached
    assert evidence["many001"].detail.startswith(words)
    assert evidence["many002"].unreached is Unreached.NOT_READY


def test_a_node_speaks_for_itself_alone_whatever_its_pod_is_called(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "written", report("one").encode())
    with agents(kubernetes, STARTED, "many001"), kubernetes.node("gpu701"):
        (own,) = kubernetes.plane.items(PODS)
        labels = {"labels": {**LABELS, "kubernetes.io/hostname": "gpu701"}}
        kubernetes.plane.patch(f"{PODS}/{own['metadata']['name']}", {"metadata": labels})
        evidence = read("many001", "gpu701")
    assert evidence["gpu701"].unreached is Unreached.NOT_STARTED
    assert evidence["gpu701"].detail == "no agent is on it; expected one of its DaemonSet"


def test_a_pod_that_the_daemon_set_has_not_made_speaks_for_no_node(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "written", report("one").encode())
    with agents(kubernetes, STARTED, "many001"), kubernetes.node("many009"):
        uid = kubernetes.plane.call("GET", "/api/v1/nodes/many009")["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "Node", "name": "many009", "uid": uid, "controller": True}
        metadata = {"name": "imposter", "labels": LABELS, "ownerReferences": [reference]}
        spec = {"nodeName": "many009", "containers": [{"name": "agent", "image": "x"}]}
        kubernetes.plane.call("POST", PODS, {"metadata": metadata, "spec": spec})
        evidence = read("many001", "many009")
    assert evidence["many001"].unreached is None
    assert evidence["many009"].unreached is Unreached.NOT_STARTED
    assert evidence["many009"].detail == "no agent is on it; expected one of its DaemonSet, which has not made imposter"


def test_the_older_of_two_agents_speaks_as_a_daemon_set_adopts_what_looks_like_its_own() -> None:
    older, two = (
        pod_of({"metadata": {"name": name, "creationTimestamp": at}, "spec": {"nodeName": "a"}}) for name, at in TWO
    )
    gone = pod_of({"metadata": {"name": "c", "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "x"}})
    assert by_node([older, two, replace(gone, node="a")])["a"] is two


def test_an_agent_that_has_no_place_on_its_node_is_reported_in_the_schedulers_words() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["gpu701"]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    message = "0/9 nodes are available: 1 Insufficient cpu, 8 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    unplaced = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    waiting = pod_of(
        {
            "metadata": {"name": "agent-x"},
            "spec": {"containers": [{"name": "agent"}], "affinity": {"nodeAffinity": required}},
            "status": {"phase": "Pending", "conditions": [unplaced]},
        }
    )
    node = node_of({"metadata": {"name": "gpu701"}, "status": {"conditions": [ready("2026-01-02T03:04:05Z")]}})
    answer = unreported(node, by_node([waiting])["gpu701"])
    assert answer
    assert (answer.unreached, answer.detail) == (Unreached.NOT_STARTED, f"its agent does not run: Pending {message}")
    assert by_node([waiting, agent("gpu701")])["gpu701"].is_ready


def test_without_the_agents_daemon_set_nobody_speaks(kubernetes: Bed) -> None:
    with pytest.raises(
        Unusable,
        match="no agent is in the namespace clusterproof; expected pods of its DaemonSet clusterproof-agent: kubectl",
    ):
        read("many001")


def test_a_user_who_may_not_read_logs_is_told_so_in_one_line(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    of_apps = {"apiGroups": ["apps"], "resources": ["daemonsets"], "verbs": ["get"]}
    of_pods, of_nodes = ({"apiGroups": [""], "resources": [kind], "verbs": ["list"]} for kind in ("pods", "nodes"))
    user, token = kubernetes.account([of_apps, of_pods], [of_nodes])
    with agents(kubernetes, STARTED, "many001", "many002"):
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
        with pytest.raises(Unusable) as why:
            read("many001", "many002")
    assert f'User "{user}" cannot get resource "pods/log"' in str(why.value)
    assert str(why.value).endswith("gate.yaml grants what is needed (docs/kubernetes-gate.md)")
