"""What the gate makes of an agent's log: a node's own words, read through a real API server and decoded strictly."""

from __future__ import annotations

import contextlib
import json
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.agent.sending import begin, lines
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Status, Unreached
from clusterproof.plugins.transport import Limits, Unusable
from clusterproof.plugins.transport.gather import gather
from clusterproof.plugins.transport.kubernetes.agents import REPORT, Agents
from tests.builders.evaluated import among
from tests.kubernetes.kubelets import Log, kubelets
from tests.kubernetes.programs import PODS
from tests.testbed.kubernetes.bed import Bed
from tests.testbed.kubernetes.processes import wait_until
from tests.testbed.needs import needs_kubernetes

pytestmark = needs_kubernetes
LABELS = {"app.kubernetes.io/name": "clusterproof", "app.kubernetes.io/component": "agent"}
STARTED = {"running": {"startedAt": "2026-01-02T03:04:05Z"}}
PULLED_NOT = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
AGAIN = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}}


def report(boot: str, began: float = 0.0) -> str:
    """One as an agent prints it, in which a node says which boot it is in, and when by its clock it began."""
    collectors = {"boot": {"status": "read", "value": {"id": boot}, "seconds": 0.1}}
    answer = json.dumps({"probe": {"uid": 0, "began": began, "seconds": 2.0}, "collectors": collectors}).encode()
    return "\n".join([begin(REPORT), *lines(zlib.compress(answer), REPORT)]) + "\n"


@contextlib.contextmanager
def agents(bed: Bed, state: dict[str, Any], *names: str) -> Iterator[None]:
    """Nodes with an agent that is in this state."""
    status = {"name": "agent", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "state": state}
    with kubelets(bed, list(names), {"phase": "Running", "containerStatuses": [status]}):
        for name in names:
            spec = {"nodeName": name, "containers": [{"name": "agent", "image": "x"}]}
            bed.plane.call("POST", PODS, {"metadata": {"name": f"agent-{name}", "labels": LABELS}, "spec": spec})
        wait_until(lambda: all("containerStatuses" in one["status"] for one in bed.plane.items(PODS)), "running")
        try:
            yield
        finally:
            bed.plane.call("DELETE", f"{PODS}?gracePeriodSeconds=0")
            wait_until(lambda: not bed.plane.items(PODS), "gone")


def read(*names: str) -> dict[str, NodeEvidence]:
    cluster = Cluster("bed", "agents", tuple(map(Target, names)))
    return gather(cluster, Agents(), ["boot"], ProbeOptions(), Limits(), lambda evidence: evidence)


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
        found = read("many001")["many001"]
    assert (found.unreached, found.detail) == (None, "")
    assert found.collectors["boot"].status is Status.READ
    assert found.collectors["boot"].value == {"id": boot}


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
        found = read("many001")["many001"]
    assert found.unreached is unreached
    assert words in found.detail


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
        found = read("many001", "many002")
    assert found["many001"].unreached is unreached
    assert found["many001"].detail.startswith(words)
    assert found["many002"].unreached is Unreached.NOT_READY


def test_a_node_speaks_for_itself_alone_whatever_its_pod_is_called(
    kubernetes: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Log, "written", report("one").encode())
    with agents(kubernetes, STARTED, "many001"), kubernetes.node("gpu701"):
        name = {"name": "agent-gpu701", "labels": {**LABELS, "kubernetes.io/hostname": "gpu701"}}
        spec = {"nodeName": "many001", "containers": [{"name": "agent", "image": "x"}]}
        kubernetes.plane.call("POST", PODS, {"metadata": name, "spec": spec})
        found = read("many001", "gpu701")
    assert found["gpu701"].unreached is Unreached.NOT_STARTED
    assert found["gpu701"].detail == "no agent is on it; expected one of its DaemonSet"


def test_who_may_not_read_logs_is_told_so_in_one_line(kubernetes: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    user, token = kubernetes.granted(without=("get", "pods/log"))
    with agents(kubernetes, STARTED, "many001", "many002"):
        monkeypatch.setenv("KUBECONFIG", str(kubernetes.plane.kubeconfig(token)))
        with pytest.raises(Unusable) as why:
            read("many001", "many002")
    assert f'User "{user}" cannot get resource "pods/log"' in str(why.value)
    assert str(why.value).endswith("gate.yaml grants what is needed (docs/kubernetes-gate.md)")
