"""Fixtures of several test files."""

from __future__ import annotations

import os

import pytest

from tests.runs import Runs

pytest_plugins = ["pytester"]
os.environ.pop("GITHUB_STEP_SUMMARY", None)  # runs of a test's own are no news for the job that runs the tests


@pytest.fixture
def runs(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Runs of the real plugin over a small recording and small checks of the test's own."""
    return Runs.prepared(pytester, tmp_path_factory.mktemp("packages"), monkeypatch)
