"""An Xid drains once: again until it could, and not again once an administrator has resumed the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.integrations.slurm import health_check
from tests.integrations.slurm.histories import FULL, History


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """One on which a health check has found nothing."""
    history = History(tmp_path, monkeypatch)
    history.health_check()
    return history


def test_an_xid_that_could_not_drain_does_so_later_though_a_job_passes_meanwhile(node: History) -> None:
    node.full_before = FULL
    node.health_check()
    node.log(xid=True)
    node.prolog("50")
    node.epilog("50")
    assert node.drains == []
    node.full_before = ""
    node.health_check()
    assert node.drains == ["health-check"]


def test_an_xid_that_could_not_drain_is_looked_at_by_who_resumes_the_node_after_a_later_one(node: History) -> None:
    node.full_before = FULL
    node.health_check()
    node.log(xid=True)
    node.prolog("50")
    node.log(xid=True)
    node.full_before = ""
    health_check.record_full_partition(node.call("health-check"), "", 4)
    node.epilog("50")
    assert node.drains == ["epilog 50"]
    node.health_check()
    node.resume()
    node.health_check()
    node.health_check()
    assert node.drains == ["epilog 50"]
