"""A gate's cache of agents' reports: a log is read again after a change, and otherwise seldom."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.kubernetes.pods import Pod, pod_of
from clusterproof.plugins.transport.kubernetes.report_cache import (
    REST_S,
    AgentPods,
    ReportCache,
    hand_over,
    handed_share,
)

NOW = 1_800_000_000.0
SINCE = "2026-01-02T03:04:05Z"


def pod(node: str = "gpu001", name: str = "agent-a", ready: str = "True", since: str = SINCE, restarts: int = 0) -> Pod:
    status = {
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": since}],
        "containerStatuses": [{"name": "agent", "restartCount": restarts}],
    }
    spec = {"nodeName": node, "containers": [{"name": "agent"}]}
    return pod_of({"metadata": {"name": name}, "spec": spec, "status": status})


def test_a_report_is_kept_as_it_was_read_while_its_pod_is_as_it_was(tmp_path: Path) -> None:
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(), b"cpreport01:begin.\n\xff\n", NOW)
    report = kept.current(pod(), NOW + 60)
    assert report
    assert (report.output, report.at) == (b"cpreport01:begin.\n\xff\n", NOW)
    assert kept.read_at("gpu001") == NOW


@pytest.mark.parametrize(
    "now",
    [
        pod(name="agent-b"),
        pod(restarts=1),
        pod(since="2026-01-02T03:05:05Z"),
        pod(ready="False"),
        pod(node="gpu002"),
    ],
    ids=["another pod", "started again", "was unready", "is unready", "of another node"],
)
def test_it_is_read_again_where_anything_changed(tmp_path: Path, now: Pod) -> None:
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(), b"x", NOW)
    assert kept.current(now, NOW + 60) is None


def test_a_pod_that_stays_unready_is_read_each_time(tmp_path: Path) -> None:
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(ready="False"), b"x", NOW)
    assert kept.current(pod(ready="False"), NOW + 60) is None


@pytest.mark.parametrize(("later_s", "is_current"), [(0.0, True), (REST_S, False), (-1.0, False), (0.7 * REST_S, True)])
def test_it_is_read_again_after_a_while_and_where_clocks_go_back(
    tmp_path: Path, later_s: float, is_current: bool
) -> None:
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(), b"x", NOW)
    assert bool(kept.current(pod(), NOW + later_s)) is is_current


@pytest.mark.long
def test_reports_that_were_read_in_one_round_are_not_all_read_in_one_again(tmp_path: Path) -> None:
    kept = ReportCache(str(tmp_path))
    nodes = [f"gpu{number:03d}" for number in range(200)]
    for node in nodes:
        kept.keep(pod(node), b"x", NOW)
    left = [sum(bool(kept.current(pod(node), NOW + share * REST_S)) for node in nodes) for share in (0.75, 0.85, 0.95)]
    assert 200 >= left[0] > left[1] > left[2] > 0


def test_a_node_that_fails_beside_others_for_the_first_time_has_all_logs_read_anew_and_then_no_more(
    tmp_path: Path,
) -> None:
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(), b"x", NOW)
    assert kept.unconfirmed(["gpu002"], NOW + 1, ["gpu001", "gpu002"]) == {"gpu002"}
    assert kept.current(pod(), NOW + 60) is None
    kept.keep(pod(), b"y", NOW + 60)
    assert kept.unconfirmed(["gpu002"], NOW + 61, ["gpu001", "gpu002"]) == frozenset()
    assert kept.current(pod(), NOW + 120)


def test_while_no_node_fails_beside_others_no_log_is_read_for_that(tmp_path: Path) -> None:
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(), b"x", NOW)
    assert kept.unconfirmed([], NOW + 1, ["gpu001"]) == frozenset()
    assert kept.current(pod(), NOW + 60)


def test_one_that_passed_in_between_fails_for_the_first_time_again(tmp_path: Path) -> None:
    kept = ReportCache(str(tmp_path))
    waited = [
        kept.unconfirmed(names, NOW + 60 * at, ["a", "b"]) for at, names in enumerate((["a"], [], ["a"], ["a", "b"]))
    ]
    assert waited == [{"a"}, set(), {"a"}, {"b"}]


@pytest.mark.parametrize("folder", ["", "gone"])
def test_where_nothing_can_be_kept_no_fault_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        ReportCache(folder and str(tmp_path / folder)).unconfirmed(["gpu002"], NOW, ["gpu001", "gpu002"]) == frozenset()
    )


def test_without_a_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # whose files are not the gate's own
    ReportCache(str(tmp_path)).keep(pod(), b"x", NOW)
    kept = ReportCache("")
    kept.keep(pod("gpu002"), b"x", NOW)
    assert [path.name for path in tmp_path.rglob("gpu*")] == ["gpu001"]
    assert kept.current(pod(), NOW) is None
    assert kept.read_at("gpu001") is None


def test_a_folder_that_cannot_be_written_keeps_nothing_and_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "reports").write_text("in the way")
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(), b"x", NOW)
    assert kept.current(pod(), NOW) is None


@pytest.mark.parametrize("left", [b"", b"\xff\n", b"yesterday mark\n", b"[]", b'{"since": null, "nodes": 3}'])
def test_what_a_host_that_lost_its_power_left_is_read_anew(tmp_path: Path, left: bytes) -> None:
    kept = ReportCache(str(tmp_path))
    kept.keep(pod(), b"x", NOW)
    kept.unconfirmed(["gpu002"], NOW, ["gpu001", "gpu002"])
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_bytes(left)
    assert kept.current(pod(), NOW + 60) is None
    assert kept.read_at("gpu001") is None
    assert kept.unconfirmed(["gpu002"], NOW, ["gpu001", "gpu002"]) == {"gpu002"}


SHARE = (Target("gpu001", group="train", instance_type="p5.48xlarge"), Target("gpu002"))
AGENTS = AgentPods({"gpu001": pod(), "gpu009": pod("gpu009")}, {"gpu002": pod("gpu002"), "gpu009": pod("gpu009")})


def test_a_share_is_handed_over_with_its_own_agents_alone_and_as_they_are(tmp_path: Path) -> None:
    hand_over(tmp_path, SHARE, AGENTS)
    share = handed_share(str(tmp_path))
    assert share
    assert share.targets == SHARE
    assert (share.agents.own, share.agents.others) == ({"gpu001": pod()}, {"gpu002": pod("gpu002")})


@pytest.mark.parametrize(("targets", "agents"), [((), AGENTS), (SHARE, AgentPods({}, {}))], ids=["whole", "no agents"])
def test_nothing_is_left_of_an_earlier_share(tmp_path: Path, targets: tuple[Target, ...], agents: AgentPods) -> None:
    hand_over(tmp_path, SHARE, AGENTS)
    hand_over(tmp_path, targets, agents)
    assert handed_share(str(tmp_path)) is None


@pytest.mark.parametrize("left", ["", "{", "[]", "{}", "[[], {}]", '[[{"name": 1, "x": 2}], {}, {}]', "[[], [], []]"])
def test_half_of_a_share_is_none(tmp_path: Path, left: str) -> None:
    (tmp_path / "share.json").write_text(left)
    assert handed_share(str(tmp_path)) is None
    assert handed_share("") is None


def test_a_share_is_no_whole_cluster_and_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)  # nobody could be asked
    hand_over(tmp_path, SHARE, AGENTS)
    cluster = resolve("k8s:in-cluster", {"via": "agents", "k8s_keep": str(tmp_path)})
    assert (cluster.targets, cluster.connection, cluster.is_part) == (SHARE, "agents", True)
    with pytest.raises(InventoryError, match="expected to run in a pod"):
        resolve("k8s:in-cluster", {"via": "agents", "k8s_keep": str(tmp_path / "other")})
