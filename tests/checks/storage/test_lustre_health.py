"""Nodes whose Lustre client reports nothing: those that have none, and those that mount a file system nevertheless."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import said

WITHOUT_MODULE = Collected(Status.ABSENT, detail="no Lustre client: no module lustre is loaded")


def health(*mounts: dict[str, Any]) -> Result:
    """The result on a node without the module that mounts these."""
    data = {"lustre": WITHOUT_MODULE, "mounts": Collected(Status.READ, {"mounts": list(mounts)})}
    return said("storage.lustre_health", NodeEvidence("gpu001", data))


def mount(path: str, kind: str) -> dict[str, Any]:
    return {"path": path, "source": "fs", "type": kind, "options": "rw", "status": "ok"}


def test_a_node_that_mounts_no_lustre_needs_no_client() -> None:
    result = health(mount("/", "ext4"))
    assert (result.verdict, result.message) == (Verdict.NOT_APPLICABLE, "no Lustre file system is mounted")


def test_a_mount_without_a_client_that_reports_it_is_incomplete() -> None:
    result = health(mount("/fsx", "lustre"))
    assert result.verdict is Verdict.INCOMPLETE
    assert result.message == "/fsx is Lustre; lustre: not on this node (no Lustre client: no module lustre is loaded)"


@pytest.mark.parametrize("check", ["lustre_health", "lustre_clients", "lustre_ost_fill", "lustre_mdt_inodes"])
def test_nothing_is_called_lustre_of_a_node_that_reports_neither_mounts_nor_a_client(check: str) -> None:
    result = said(f"storage.{check}", NodeEvidence("gpu001", {}))
    assert result.verdict is Verdict.INCOMPLETE
    assert "is Lustre" not in result.message
