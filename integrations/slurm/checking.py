"""Runs the checks on this machine: pytest over the packaged ones, in this process, with few plugins."""

from __future__ import annotations

import contextlib
import io
import os
import time
from pathlib import Path
from typing import Any

from clusterproof.integrations.slurm.settings import Settings
from clusterproof.integrations.slurm.standby import StandBy
from clusterproof.integrations.slurm.state import boot_id, since_boot_s
from clusterproof.integrations.slurm.verdict import Cursor, Finding, Run, cursor_of, cut_short

PACKAGE = Path(__file__).resolve().parents[2]
PATIENT_S = 5.0  # the suite's own patience with one kind of evidence
ASIDE_S = 2.0  # of the deadline, for what is not evidence: the start, the end of what hangs, the verdicts
# Plugins of pytest's own, each with a price at the start, that no check of ours asks for.
NOT_NEEDED = (
    "cacheprovider",
    "capture",
    "doctest",
    "faulthandler",
    "junitxml",
    "legacypath",
    "logging",
    "pastebin",
    "recwarn",
    "setuponly",
    "setupplan",
    "stepwise",
    "subtests",
    "terminal",
    "threadexception",
    "unittest",
    "unraisableexception",
    "warnings",
)
NVML = 3  # times the patience: the longest that any evidence may take


class NoVerdict(Exception):  # noqa: N818 - an outcome, not an error
    """Pytest did not come to verdicts; the text says why."""


class Heard:
    """The plugin object that keeps what pytest says."""

    def __init__(self, here: StandBy, occasions: tuple[str, ...]) -> None:
        self.here = here
        self.occasions = occasions
        self.findings: list[Finding] = []
        self.checked = 0
        self.cursor: Cursor | None = None
        self.broken: list[str] = []

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Pass over files that do not even name an occasion asked for: no check in them has its mark."""
        if collection_path.suffix != ".py":
            return None
        text = collection_path.read_bytes()
        return None if any(word.encode() in text for word in self.occasions) else True

    def pytest_cluster_connection(self) -> StandBy:
        """Reach this machine by the process that stands by."""
        return self.here

    def pytest_cluster_result(self, result: Any) -> None:
        """Keep a verdict."""
        word = result.verdict.value
        self.checked += word != "not applicable"
        if word not in ("pass", "not applicable"):
            self.findings.append(Finding(result.check, word, result.message))

    def pytest_collectreport(self, report: Any) -> None:
        """Keep why a file of checks could not be read."""
        if report.failed:
            self.broken.append(f"{report.nodeid}: {str(report.longrepr)[-200:]}")

    def pytest_sessionfinish(self, session: Any) -> None:
        """Keep how far the kernel log was read."""
        from clusterproof.plugins.state import EVIDENCE

        for told in session.config.stash.get(EVIDENCE, {}).values():
            log = told.leaves.get("kernel_log")
            value = log.value if log else None
            self.cursor = cursor_of(value.get("cursor")) if isinstance(value, dict) else None


def patience_s(deadline_s: float) -> float:
    """How long one kind of evidence may take, so that all of it comes before the deadline."""
    return max(0.1, min(PATIENT_S, (deadline_s - ASIDE_S) / NVML))


def check(occasions: tuple[str, ...], settings: Settings, deadline_s: float, cursor: Cursor | None) -> Run:
    """Run the checks of these occasions. Raises NoVerdict."""
    began = time.monotonic()
    heard = Heard(StandBy(), occasions)
    leaf_s = patience_s(deadline_s)
    try:
        status, said = _pytest(arguments(" or ".join(occasions), settings, leaf_s, deadline_s, cursor), heard)
    finally:
        heard.here.end()
    if heard.broken or not heard.checked:
        raise NoVerdict("; ".join([*heard.broken, *said.split("\n")]) or f"pytest ended with {status}, without a check")
    return Run(
        boot_id(),
        since_boot_s(),
        round(time.monotonic() - began, 3),
        heard.checked,
        tuple(heard.findings if leaf_s >= PATIENT_S else map(cut_short, heard.findings)),
        cursor,
        heard.cursor,
    )


def arguments(markexpr: str, settings: Settings, leaf_s: float, deadline_s: float, cursor: Cursor | None) -> list[str]:
    """The command line: that of `pytest --cluster local -m …`, with what these settings change."""
    words = ["--cluster", "local", "--no-report", "-m", markexpr]
    words += [f"--probe-timeout={leaf_s:g}", f"--answer-timeout={deadline_s:g}"]
    if cursor:
        words.append(f"--log-cursor={cursor[0]}:{cursor[1]}:{cursor[2]:.6f}")
    if settings.policy:
        words += ["--policy", settings.policy]
    if settings.instance_type:
        words += ["--instance-type", settings.instance_type]
    return words


def _pytest(words: list[str], heard: Heard) -> tuple[int, str]:
    """Its exit code, and what it had to say besides."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest

    from clusterproof.plugins import cluster

    own = ["-c", os.devnull, f"--rootdir={PACKAGE}", "--import-mode=importlib", "--strict-markers", "--assert=plain"]
    without = [word for name in NOT_NEEDED for word in ("-p", f"no:{name}")]
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = pytest.main([*own, *without, *words, str(PACKAGE / "checks")], plugins=[cluster, heard])
    return int(status), said.getvalue().strip()
