"""Skips the packaged checks, with a reason, if pytest runs them without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.cluster import is_requested
from clusterproof.plugins.core.kinds import NO_CLUSTER

FOUND: pytest.StashKey[bool] = pytest.StashKey()


class Unasked(pytest.Module):
    """A file of checks in a run that names no cluster and no training run."""

    def collect(self) -> list[Any]:
        """Nothing: its marks are not registered either."""
        return []


def pytest_collection(session: pytest.Session) -> None:
    """Report at once what is missing, if the command line or the configuration names these checks."""
    if not is_requested(session.config):
        raise pytest.UsageError(NO_CLUSTER)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    """Leave out a file of checks that pytest found by itself without a cluster, and note that."""
    if is_requested(parent.config):
        return None
    parent.config.stash[FOUND] = True
    return Unasked.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(config: pytest.Config) -> None:
    """Report what is missing."""
    if FOUND in config.stash:
        raise pytest.UsageError(NO_CLUSTER)
