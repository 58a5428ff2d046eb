"""Events on the watching host, and in a node's log: reported, without losing anything of what is watched."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.watch import own_health
from clusterproof.plugins.watch.changes_file import CHANGES_FILE, read_changes
from clusterproof.plugins.watch.controller import Controller, WatchSettings
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.sampler_session import SamplerOptions
from clusterproof.plugins.watch.updates import Hello, LogUpdate
from tests.watch.days import NODE, UP_S, Day
from tests.watch.receiving import change


def watched(day: Day, moments: list[tuple[float, float]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A watch's messages about its own host, whose clocks (wall time, since boot) read as given."""
    own: list[str] = []
    settings = WatchSettings(SamplerOptions(0.001), Limits(), ProbeOptions())
    controller = Controller(
        Cluster("day", "local", (Target(NODE),)), day.watch, settings, None, lambda _: None, say=own.append
    )
    left = [Hello("", *moment) for moment in moments]

    def clocks_now() -> Hello:
        if len(left) == 1:
            controller.stop()
        return left.pop(0) if len(left) > 1 else left[0]

    monkeypatch.setattr(own_health, "clocks_now", clocks_now)
    monkeypatch.setattr(controller, "_visit", lambda _: controller._events.put(None))
    monkeypatch.setattr(controller, "_connect", lambda: None)
    controller.run()
    return own


@pytest.mark.long
@pytest.mark.parametrize(
    ("moments", "said"),
    [
        ([(1e9, 50.0), (1e9 + 10, 60.0), (1e9 + 20.5, 70.0)], []),
        ([(1e9, 50.0), (1e9 + 3_610, 60.0), (1e9 + 3_620, 70.0)], ["+3600"]),
        ([(1e9, 50.0), (1e9 - 3_590, 60.0), (1e9 + 20, 70.0)], ["-3600", "+3600"]),
        ([(1e9, 50.0), (1e9 + 7_200, 7_250.0)], []),  # it was suspended for two hours
    ],
)
def test_the_clock_of_the_watching_host_is_said_to_be_set_and_nothing_else_changes(
    moments: list[tuple[float, float]], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    day = Day()
    day.ticks(3)
    before = len(day.said)
    assert watched(day, moments, monkeypatch) == [own_health.SET.format(message) for message in said]
    assert len(day.said) == before


def test_lines_of_a_node_that_were_overwritten_before_they_were_read_are_said() -> None:
    day = Day()
    day.said += day.watch.update(NODE, LogUpdate(UP_S, (), 1_200), day.now)
    (lost,) = (happened for happened in day.said if happened.key.rule == "watch.log")
    assert (lost.kind.value, lost.verdict) == ("happened", Verdict.INCOMPLETE)
    assert lost.message == "1,200 lines of the kernel log were overwritten unread; expected all of them"


def test_a_file_of_changes_that_is_rotated_away_loses_nothing_that_is_said_later(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "kept", 10.0, lambda _: None)
    path = recording.folder / CHANGES_FILE
    recording.changes([change("gpu001")], time.time(), 0.0)
    path.rename(path.with_suffix(".jsonl.1"))
    recording.changes([change("gpu002")], time.time(), 1.0)
    assert [kept.key.node for kept in read_changes(path.with_suffix(".jsonl.1"))] == ["gpu001"]
    assert [kept.key.node for kept in read_changes(path)] == ["gpu002"]
    recording.close(2.0)
