"""What Prometheus' own programs say of the metrics: the linter of promtool, node_exporter's textfile collector."""

from __future__ import annotations

import subprocess

from tests.counterparts import installed
from tests.watch.outlets_of_day import OfDay, tick

pytestmark = installed.needs("prometheus")


def linted(text: str) -> str:
    """What the linter has against it; empty where it has nothing."""
    done = subprocess.run([installed.folder("prometheus") / "lint"], input=text, capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    return done.stdout


def test_the_linter_has_nothing_against_the_metrics_of_a_watch() -> None:
    watched = OfDay().hello().told(tick(100.0), tick(110.0))
    watched.day.silence(60)
    watched.outlets.said(watched.day.said)
    watched.outlets.trouble("recording", lambda: True)
    text = watched.told(tick(120.0)).text
    assert linted(text) == ""
    assert "source_late" not in text


def test_the_linter_does_find_what_is_wrong() -> None:
    wrong = OfDay().hello().text.replace("node_samples_total", "node_samples").replace("start_time_seconds", "startMs")
    assert "_total" in linted(wrong)
