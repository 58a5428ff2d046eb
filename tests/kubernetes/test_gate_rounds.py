"""Rounds of a gate: what is evaluated, what is confirmed, and what is neither."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clusterproof.plugins.command_line import gate_run
from clusterproof.plugins.command_line.gate_run import LAST_LINES, Rounds
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.kubernetes.api import KubernetesError
from clusterproof.plugins.kubernetes.gate import FALSE, REFRESH_S, TRUE, Health
from clusterproof.plugins.kubernetes.gate.metrics import GateMetrics
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome
from clusterproof.plugins.kubernetes.pods import Pod
from clusterproof.plugins.transport.kubernetes.report_cache import AgentPods
from clusterproof.plugins.transport.kubernetes.shares import MAX_NODES
from tests.kubernetes.agents import LATER, agent, every, names

FIT, UNFIT = Health(TRUE, "ChecksPassed", "63 checks"), Health(FALSE, "GpuGpuCount", "7 GPUs")
EVALUATES = """
import sys
from pathlib import Path
from clusterproof.plugins.kubernetes.gate import Health
from clusterproof.plugins.kubernetes.gate.round import KeptVerdict, store, keep_verdicts, round_of
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome
keep = Path(sys.argv[sys.argv.index("--k8s-keep") + 1])
found = {name: Health(*words) for name, words in FOUND.items()}
keep_verdicts(keep, {name: KeptVerdict(health, 1000.0) for name, health in found.items()})
store(keep, round_of(1000.0, 1001.0, found, {}, WriteOutcome(("evaluated",), ()), {}))
"""
REPORTING = EVALUATES.replace("found, {}", "found, dict.fromkeys(found, 1000.0)")


class Gate:
    """A gate with agents, evaluation and API server simulated by a test."""

    def __init__(self, keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agents: Callable[[], Mapping[str, Pod]] = lambda: every(2)
        self.written: list[tuple[Mapping[str, Health], Mapping[str, float]]] = []
        self.now = 2000.0
        self.patched = monkeypatch
        option: Any = SimpleNamespace(x="k8s:x", every=60, region="", profile="")
        self.tally = GateMetrics(60)
        self.rounds = Rounds(option, [], keep, self.tally, threading.Event())
        monkeypatch.setattr(gate_run, "open_api", lambda _: None)
        monkeypatch.setattr(gate_run, "access_to", lambda *_: {})
        monkeypatch.setattr(gate_run, "agents_of", lambda *_: AgentPods(self.agents(), {}))
        monkeypatch.setattr(gate_run, "write", self._write)
        clock = SimpleNamespace(time=lambda: self.now, monotonic=time.monotonic)
        monkeypatch.setattr(gate_run, "time", clock)
        self.finds(n0000=FIT, n0001=FIT)

    def _write(self, *given: Any) -> WriteOutcome:
        self.written.append((given[2], given[5]))
        return WriteOutcome(("written",), ())

    def finds(self, began: float = 1000.0, **healths: Health) -> None:
        reports = {name: [health.status, health.reason, health.message] for name, health in healths.items()}
        self.makes(f"FOUND = {reports!r}\n{EVALUATES.replace('1000.0', str(began))}")

    def makes(self, program: str) -> None:
        self.patched.setattr(gate_run, "MAIN", program)

    def round(self, after_s: float = 60.0) -> None:
        self.now += after_s
        self.rounds.make()


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(tmp_path, monkeypatch)


@pytest.mark.long
def test_the_log_has_the_lines_of_a_round_and_not_its_report(gate: Gate, capsys: pytest.CaptureFixture[str]) -> None:
    gate.makes(f"print('a report, page after page')\nFOUND = {{}}\n{EVALUATES}")
    gate.round()
    assert capsys.readouterr().out == "gate: evaluated (0 requests, 1.0 s)\n"


@pytest.mark.long
def test_what_stands_is_confirmed_each_five_minutes_and_nothing_is_evaluated_for_it(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.round()
    gate.makes("raise SystemExit('evaluated again')")
    for _ in range(int(2 * REFRESH_S / 60)):
        gate.round()
    assert gate.written == [({"n0000": FIT, "n0001": FIT}, {"n0000": 1000.0, "n0001": 1000.0})] * 2
    output = capsys.readouterr().out
    assert "evaluated again" not in output
    assert "gate: 2 nodes as before (0 requests, 0.0 s)\n" in output


@pytest.mark.long
def test_an_evaluation_that_comes_to_nothing_says_its_last_words_and_confirms_no_node(
    gate: Gate, capsys: pytest.CaptureFixture[str]
) -> None:
    gate.makes(gate_run.MAIN.replace("found, {}", "found, dict.fromkeys(found, 1000.0)"))
    gate.round()
    gate.agents = lambda: {**every(2), "n0001": agent("n0001", since=LATER)}
    gate.makes("print('one\\n' * 100 + 'ERROR: no agent'); raise SystemExit(4)")
    for _ in range(10):
        gate.round()
    lines = capsys.readouterr().out.splitlines()
    assert lines[-LAST_LINES:][-1] == "ERROR: no agent"
    assert len(lines) == 1 + 10 * LAST_LINES
    assert gate.written == []
    assert gate.tally._last
    assert gate.tally._last.statuses == {"True": 0, "Unknown": 2}


@pytest.mark.long
def test_nodes_whose_evaluation_comes_to_nothing_stop_no_heartbeat_of_others_and_resolve_no_alert(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_, last = names(count := MAX_NODES + 10)
    fit, unfit = [FIT.status, FIT.reason, FIT.message], ["False", "GpuNoXid", "79"]
    healths = dict.fromkeys(names(count), fit) | {last: unfit}
    monkeypatch.setattr(gate_run, "resolve", lambda *_: Cluster("k8s:x", "agents", tuple(map(Target, names(count)))))
    gate.agents = lambda: every(count)
    gate.makes(f"FOUND = {healths!r}\n{REPORTING}")
    gate.round()
    gate.agents = lambda: {**every(count), last: agent(last, since=LATER)}
    gate.makes("raise SystemExit(4)")
    for _ in range(int(2 * REFRESH_S / 60)):
        gate.round()
    assert len(gate.written) == 2
    assert all(first in confirmed and last not in confirmed for confirmed, _ in gate.written)
    assert gate.tally._last
    assert gate.tally._last.unfit == {last: "GpuNoXid"}
    assert set(gate.tally._last.unknown.values()) == {"NotEvaluated"}
    assert gate.tally._last.statuses["True"] + len(gate.tally._last.unknown) + 1 == count


@pytest.mark.long
def test_nothing_is_reported_of_a_node_that_is_gone_though_its_last_evaluation_failed(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = names(MAX_NODES + 10)
    last = there[-1]
    monkeypatch.setattr(gate_run, "resolve", lambda *_: Cluster("k8s:x", "agents", tuple(map(Target, there))))
    gate.agents = lambda: {name: agent(name, since=since) for name in there}
    since, healths = "2026-01-02T00:00:00Z", {name: [FIT.status, FIT.reason, FIT.message] for name in there}
    gate.makes(f"FOUND = {healths | {last: ['False', 'GpuNoXid', '79']}!r}\n{REPORTING}")
    gate.round()
    since = LATER
    gate.makes("raise SystemExit(4)")
    gate.round()
    assert gate.tally._last
    assert gate.tally._last.unfit == {last: "GpuNoXid"}
    there.remove(last)
    healths.pop(last)
    gate.makes(f"FOUND = {healths!r}\n{REPORTING}")
    gate.round()
    assert (gate.tally._last.unfit, gate.tally._last.statuses["True"]) == ({}, len(there))


@pytest.mark.parametrize(("every_s", "pause_s"), [(60, 60.0), (3600, REFRESH_S)])
def test_a_verdict_is_confirmed_each_five_minutes_however_seldom_agents_report(
    monkeypatch: pytest.MonkeyPatch, every_s: int, pause_s: float
) -> None:
    pauses: list[float] = []
    is_over: Any = SimpleNamespace(is_set=lambda: bool(pauses), wait=pauses.append)
    monkeypatch.setattr(Rounds, "make", lambda _: None)
    option: Any = SimpleNamespace(x="k8s:x", every=every_s, region="", profile="", listen="")
    gate_run.run(option, [], is_over)
    assert pauses == [pytest.approx(pause_s, abs=30.0)]


@pytest.mark.long
@pytest.mark.parametrize("refuses", [True, False], ids=["the API server does not answer", "there are no agents"])
def test_where_no_agent_is_seen_no_node_is_confirmed(gate: Gate, refuses: bool) -> None:
    gate.round()

    def none() -> Mapping[str, Pod]:
        if refuses:
            raise KubernetesError("no answer from https://x")
        return {}

    gate.agents = none
    gate.makes("raise SystemExit(4)")
    for _ in range(10):
        gate.round()
    assert gate.written == []


@pytest.mark.long
@pytest.mark.parametrize("refusing", ["open_api", "agents_of", "resolve"])
def test_without_its_api_server_no_node_counts_as_proven_by_an_old_heartbeat(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, refusing: str
) -> None:
    def refused(*_: object) -> object:
        raise KubernetesError("no answer from https://x")

    gate.finds(n0000=UNFIT, n0001=FIT)
    gate.round()
    gate.agents = lambda: every(MAX_NODES + 1)
    monkeypatch.setattr(gate_run, refusing, refused)
    counts = []
    for _ in range(8):
        gate.round()
        assert gate.tally._last
        counts.append((gate.tally._last.statuses["True"], gate.tally._last.unfit, gate.tally._last.unknown))
    unfit = {"n0000": "GpuGpuCount"}
    assert counts == [(1, unfit, {})] * 7 + [(0, unfit, {"n0001": "NotEvaluated"})]


@pytest.mark.long
def test_a_node_whose_agent_says_that_something_changes_is_not_confirmed_until_it_is_evaluated(gate: Gate) -> None:
    gate.agents = lambda: {**every(1), "n0001": agent("n0001", is_ready=False)}
    gate.round()
    gate.round(3 * 60.0)  # evaluated: the same
    gate.round(2 * 60.0 + 1.0)  # and again, because it is written by a separate process
    gate.round(1.0)
    assert [healths for healths, _ in gate.written] == [{"n0000": FIT}]
    gate.finds(n0000=FIT, n0001=UNFIT)
    gate.agents = lambda: {**every(1), "n0001": agent("n0001", since=LATER)}
    gate.round()
    gate.round(REFRESH_S)
    assert gate.written[-1][0] == {"n0000": FIT, "n0001": UNFIT}


@pytest.mark.long
def test_a_node_whose_agent_never_comes_to_rest_is_confirmed_while_it_is_evaluated_to_the_same(gate: Gate) -> None:
    gate.agents = lambda: {**every(1), "n0001": agent("n0001", is_ready=False)}
    for _ in range(2 * 5 + 1):
        gate.finds(gate.now + 60.0, n0000=FIT, n0001=UNFIT)
        gate.round()
    assert [healths for healths, _ in gate.written] == [{"n0000": FIT, "n0001": UNFIT}] * 2


@pytest.mark.parametrize(
    ("x", "asked"),
    [("eks:prod/pool=train", "eks:prod"), ("k8s:prod/pool=train", "k8s:prod/pool=train"), ("eks:prod", "eks:prod")],
)
def test_agents_are_looked_for_in_the_cluster_whichever_of_its_nodes_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, x: str, asked: str
) -> None:
    seen: list[str] = []

    def refused(where: str, _: object) -> Mapping[str, str]:
        seen.append(where)
        raise KubernetesError("no answer")

    monkeypatch.setattr(gate_run, "access_to", refused)
    option: Any = SimpleNamespace(x=x, every=60, region="", profile="")
    Rounds(option, [], tmp_path, GateMetrics(60), threading.Event()).make()
    assert seen == [asked]


@pytest.mark.long
def test_what_could_not_be_written_is_tried_in_the_next_round(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    gate.round()
    monkeypatch.setattr(gate_run, "write", lambda *given: gate._write(*given) and WriteOutcome((), ("409 Conflict",)))
    gate.round(REFRESH_S)
    gate.round()
    monkeypatch.setattr(gate_run, "write", gate._write)
    gate.round()
    gate.round()
    assert len(gate.written) == 3


def test_a_share_is_handed_over_with_its_agents_as_they_are_when_its_turn_comes(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, looks = MAX_NODES + 10, iter(range(100))
    handed: list[tuple[list[Target], Pod]] = []

    def note(_: Path, chosen: Iterable[Target], seen: AgentPods) -> None:
        handed.append((list(chosen), seen.own["n0000"]))

    monkeypatch.setattr(gate_run, "resolve", lambda *_: Cluster("k8s:x", "agents", tuple(map(Target, names(count)))))
    monkeypatch.setattr(gate_run, "hand_over", note)
    gate.agents = lambda: {**every(count), "n0000": agent("n0000", since=f"look {next(looks)}")}
    gate.makes("raise SystemExit(4)")
    gate.round()
    assert sorted(listed.name for chosen, _ in handed for listed in chosen) == names(count)
    assert [pod.ready for _, pod in handed] == ["look 1", "look 2"]


@pytest.mark.long
def test_when_a_node_reported_is_known_until_it_is_gone_whichever_share_was_evaluated_last(gate: Gate) -> None:
    for reported in ({"n0000": 1.0, "n0009": 1.0}, {"n0001": 2.0}):
        gate.patched.setattr(gate_run, "MAIN", gate_run.MAIN.replace("found, {}", f"found, {reported}"))
        changed = {**every(1), "n0001": agent("n0001", since=str(reported))}
        gate.patched.setattr(gate, "agents", changed.copy)
        gate.round()
        gate.finds(n0000=FIT, n0001=FIT)
    gate.round()
    assert gate.tally._last
    assert gate.tally._last.reported == {"n0000": 1.0, "n0001": 2.0}
