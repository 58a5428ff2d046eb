"""Makes the packaged checks what runs where the command line names no test; workers of xdist load it by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

CHECKS = Path(__file__).resolve().parents[2] / "checks"


def pytest_configure(config: pytest.Config) -> None:
    """Choose what to collect."""
    if config.args_source is config.ArgsSource.INVOCATION_DIR:
        config.args = [str(CHECKS)]
