"""`--k8s-evidence`: an unfit node's report is still available when the node is gone."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.inventory import resolve
from clusterproof.plugins.kubernetes.gate import GateSettings
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome
from clusterproof.plugins.suite.reporters import k8s_gate
from clusterproof.plugins.suite.reporters.k8s_gate import MAX_RECORDINGS, K8sGateReporter, keep_unfit
from clusterproof.plugins.suite.state import EVIDENCE
from clusterproof.plugins.transport.gather import replayed
from tests.builders.runs import ROOT

AT = 1_790_000_000.0
CLUSTER = Cluster("k8s:bed", "agents", (Target("gpu001"), Target("gpu002")), {"kubernetes": "in-cluster"})


@pytest.fixture(scope="module")
def reported() -> NodeEvidence:
    """The report of a demo node, renamed gpu002."""
    return replace(next(iter(replayed(ROOT / "fixtures" / "demo", resolve("demo")))), node="gpu002")


def kept(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))


def test_it_is_a_recording_of_that_node_alone_and_says_the_same(reported: NodeEvidence, tmp_path: Path) -> None:
    keep_unfit(tmp_path, CLUSTER, reported, AT)
    assert kept(tmp_path) == ["gpu002/20260921T141320Z"]
    cluster = resolve(f"replay:{tmp_path}/gpu002/20260921T141320Z")
    assert ([target.name for target in cluster.targets], cluster.is_part) == (["gpu002"], True)
    (again,) = replayed(tmp_path / "gpu002" / "20260921T141320Z", cluster)
    assert again.collectors == reported.collectors


def test_the_newest_are_kept_of_a_node_that_comes_and_goes(reported: NodeEvidence, tmp_path: Path) -> None:
    for minute in range(MAX_RECORDINGS + 3):
        keep_unfit(tmp_path, CLUSTER, reported, AT + 60 * minute)
    assert len(kept(tmp_path)) == MAX_RECORDINGS
    assert kept(tmp_path)[0] == "gpu002/20260921T141620Z"


def test_what_others_put_beside_recordings_stays_and_counts_for_none(reported: NodeEvidence, tmp_path: Path) -> None:
    for name in ("0-notes", "20260921", "lost+found", "zz"):
        (tmp_path / "gpu002" / name).mkdir(parents=True)
    (tmp_path / "gpu002" / "19990101T000000Z").write_text("a file")
    (tmp_path / "gpu002" / "19990102T000000Z").symlink_to(tmp_path)
    others = set(kept(tmp_path))
    for minute in range(MAX_RECORDINGS + 1):
        keep_unfit(tmp_path, CLUSTER, reported, AT + 60 * minute)
    newest = {f"gpu002/20260921T14{minute}20Z" for minute in range(14, 14 + MAX_RECORDINGS)}
    assert set(kept(tmp_path)) == others | newest


def test_on_a_full_volume_there_is_room_for_the_newest_and_no_half_of_one(
    reported: NodeEvidence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for minute in range(MAX_RECORDINGS):
        keep_unfit(tmp_path, CLUSTER, reported, AT + 60 * minute)
    full = OSError(errno.ENOSPC, "No space left on device")

    def no_room(*_: object) -> None:
        assert len(kept(tmp_path)) == MAX_RECORDINGS  # including the one being written
        raise full

    monkeypatch.setattr(k8s_gate, "write_node", no_room)
    with pytest.raises(OSError, match="No space left"):
        keep_unfit(tmp_path, CLUSTER, reported, AT + 60 * MAX_RECORDINGS)
    assert [replay_of(tmp_path / name) for name in kept(tmp_path)] == ["gpu002"] * (MAX_RECORDINGS - 1)


def replay_of(recording: Path) -> str:
    (node,) = replayed(recording, resolve(f"replay:{recording}"))
    return node.node


def test_a_node_is_no_folder_elsewhere_whatever_it_is_called(reported: NodeEvidence, tmp_path: Path) -> None:
    keep_unfit(tmp_path / "kept", CLUSTER, replace(reported, node="../../gone"), AT)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch, reported: NodeEvidence) -> Any:
    """A round that found gpu001 fit and gpu002 unfit, and wrote these changes; returns what could not be done."""

    def of(folder: Path, *changed: str) -> tuple[str, ...]:
        monkeypatch.setattr(k8s_gate, "open_api", lambda _: None)
        monkeypatch.setattr(k8s_gate, "write", lambda *_: WriteOutcome((), (), dict.fromkeys(changed, "is changed")))
        plugins = SimpleNamespace(get_plugin=lambda _: SimpleNamespace(broken=0, raised=None))
        option = SimpleNamespace(k8s_keep=None, k8s_evidence=str(folder))
        stash = {EVIDENCE: {name: replace(reported, node=name) for name in ("gpu001", "gpu002")}}
        config: Any = SimpleNamespace(option=option, pluginmanager=plugins, stash=stash)
        session: Any = SimpleNamespace(config=config, shouldfail="", shouldstop="", exitstatus=1)
        reporter = K8sGateReporter.__new__(K8sGateReporter)
        reporter.orders, reporter.cluster, reporter.began = GateSettings(), CLUSTER, AT
        reporter.results = [Result("gpu.a", "gpu001", Verdict.PASS), Result("gpu.a", "gpu002", Verdict.FAIL)]
        reporter.pytest_sessionfinish(session)
        return reporter.written.problems

    return of


def test_a_round_keeps_what_became_unfit_and_nothing_else(ended: Any, tmp_path: Path) -> None:
    assert ended(tmp_path) == ()
    assert kept(tmp_path) == []
    assert ended(tmp_path, "gpu001", "gpu002") == ()
    assert kept(tmp_path) == ["gpu002/20260921T141320Z"]


def test_a_folder_that_takes_nothing_is_a_problem_of_the_round(ended: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (problem,) = ended(tmp_path / "file", "gpu002")
    assert "--k8s-evidence" in problem
    assert problem.endswith("expected a folder with room that may be written")
