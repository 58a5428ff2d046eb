"""pytest hooks by which other authors extend the suite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterproof.plugins.core.cluster import Cluster
    from clusterproof.plugins.core.result import Result
    from clusterproof.plugins.transport import Connection


@pytest.hookspec(firstresult=True)
def pytest_cluster_inventory(config: pytest.Config, text: str) -> Cluster | None:
    """Turn the X of `--cluster X` into a cluster, or return None to leave it to other plugins."""


@pytest.hookspec(firstresult=True)
def pytest_cluster_connection(config: pytest.Config, cluster: Cluster) -> Connection | None:
    """Return the connection for a cluster whose `connection` is not the suite's own."""


def pytest_cluster_collectors(config: pytest.Config) -> Sequence[str]:  # type: ignore[empty-body]
    """Return paths of Python files, each a collector named like its file, with a function `read(node)`."""


def pytest_cluster_result(config: pytest.Config, result: Result) -> None:
    """Called once for each verdict as it is reached."""
