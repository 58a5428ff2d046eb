"""From where the kernel log is evaluated again for a drain, once an administrator has resumed the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.integrations.slurm.control import NodeState
from clusterproof.integrations.slurm.drains import (
    EXPLAIN_S,
    LOOKED_AT,
    Drain,
    drain_of,
    remember,
    remembered_drains,
    since_looked_at,
)
from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.our_drains import in_use
from clusterproof.integrations.slurm.verdict import CheckFinding, Cursor
from tests.integrations.slurm.calls import call_of, state_in

XID, AER, LOST = "gpu.no_xid", "host.pcie_aer", "gpu.gpu_answers"


def at(sequence: int, boot: str = "boot") -> Cursor:
    return boot, sequence, 1.0 * sequence


ENDS = at(20)


def begins(checks: tuple[str, ...], looked: dict[str, Cursor], ends: Cursor | None = ENDS) -> Cursor | None:
    findings = tuple(CheckFinding(check, "fail", "") for check in checks)
    drain = Drain("epilog", "41", findings, "clusterproof: why", at(10), 1.0, ends=ends)
    return since_looked_at(drain, looked, at(50), {XID, AER}.__contains__).begins


@pytest.mark.parametrize(
    ("checks", "looked", "sequence"),
    [
        ((XID,), {}, 10),
        ((XID,), {XID: at(20)}, 50),
        ((XID,), {XID: at(30)}, 50),
        ((XID,), {XID: at(15)}, 15),
        ((XID, AER), {XID: at(20)}, 10),
        ((XID, AER), {XID: at(20), AER: at(17)}, 17),
        ((XID, LOST), {XID: at(20)}, 50),
        ((LOST,), {XID: at(40)}, 50),
        ((XID,), {XID: at(20, "another boot")}, 10),
        ((), {XID: at(20)}, 10),
    ],
    ids=[
        "nothing was looked at",
        "all was looked at",
        "more was looked at",
        "some was looked at",
        "one check's was",
        "some of both",
        "what the log does not show",
        "nothing of the log",
        "another boot",
        "nothing is known",
    ],
)
def test_what_was_looked_at_is_not_evaluated_again(
    checks: tuple[str, ...], looked: dict[str, Cursor], sequence: int
) -> None:
    assert begins(checks, looked) == at(sequence)


def test_a_log_whose_end_is_unknown_is_evaluated_again() -> None:
    assert begins((XID,), {XID: at(20)}, ends=None) == at(10)


@pytest.mark.parametrize(
    ("is_reported", "age_s", "jobs", "is_looked_at", "is_kept"),
    [
        (True, 0, {"41"}, True, False),
        (False, 0, set(), True, False),
        (False, 0, {"41"}, False, True),
        (False, 3600, {"41"}, False, False),
        (False, 3600, set(), True, False),
        (False, 0, None, False, True),
        (False, 3600, None, False, False),
    ],
    ids=[
        "Slurm has the reason",
        "Slurm has the job no more",
        "Slurm still has the job",
        "Slurm never came to it",
        "Slurm came to it late",
        "Slurm does not say",
        "Slurm never said",
    ],
)
def test_what_slurm_drained_a_node_for_that_is_in_use_again_has_been_looked_at(
    is_reported: bool, age_s: float, jobs: set[str] | None, is_looked_at: bool, is_kept: bool, tmp_path: Path
) -> None:
    state = state_in(tmp_path / "state")
    state.prepare()
    findings = (CheckFinding(XID, "fail", ""),)
    then = since_boot_s() - age_s
    drain = Drain(
        "epilog", "41", findings, "clusterproof: why", at(10), then, is_reported, ends=at(20), boot_id=boot_id()
    )
    remember(state, drain)
    call = call_of("health-check", state)
    in_use(call, NodeState(frozenset({"IDLE"}), "", ()), (drain,), frozenset(jobs) if jobs is not None else None)
    assert (XID in state.read(LOOKED_AT), bool(remembered_drains(state))) == (is_looked_at, is_kept)


@pytest.mark.parametrize(
    ("age_s", "boot", "is_young"),
    [
        (0.0, boot_id(), True),
        (EXPLAIN_S - 30, boot_id(), True),
        (EXPLAIN_S + 5, boot_id(), False),
        (-3600.0, boot_id(), False),
        (0.0, "another", False),
        (0.0, "", False),
    ],
)
def test_a_drain_is_young_for_as_long_as_slurm_may_come_to_it_in_the_same_boot(
    age_s: float, boot: str, is_young: bool
) -> None:
    drain = Drain("prolog", "41", (), "clusterproof: why", None, since_boot_s() - age_s, boot_id=boot)
    assert (drain.is_young, drain.is_pending) == (is_young, is_young)


@pytest.mark.parametrize("word", ["is_reported", "is_told"])
def test_a_drain_that_slurm_knows_of_is_known_as_that_after_an_upgrade(word: str) -> None:
    drain = drain_of({"reason": "clusterproof: why", "at": 1.0, "findings": [], word: True})
    assert drain is not None
    assert drain.is_reported
