"""An Xid drains once: retried until it succeeds, and not again once an administrator has resumed the node."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from clusterproof.integrations.slurm import call as calls
from clusterproof.integrations.slurm import control, health_check, our_drains
from clusterproof.integrations.slurm.call import Call
from clusterproof.integrations.slurm.control import SlurmError
from clusterproof.integrations.slurm.drains import Drain
from clusterproof.plugins.core.record import replace
from tests.integrations.slurm.histories import FULL, History


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A node on which a health check has found nothing."""
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


def test_a_drain_of_ours_that_has_no_reason_yet_is_not_one_by_hand(
    node: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.prolog("41")
    node.log(xid=True)
    ours = our_drains.our_drains

    def and_an_epilog_ends(call: Call) -> tuple[Drain, ...]:
        drains = ours(call)
        monkeypatch.setattr(health_check, "our_drains", ours)
        node.epilog("41")
        return drains

    monkeypatch.setattr(health_check, "our_drains", and_an_epilog_ends)
    node.health_check()
    node.health_check()
    node.health_check()
    assert node.slurm.is_drained


@pytest.mark.parametrize(("module", "moment"), [(health_check, "full_before_claim"), (calls, "remember")])
def test_an_epilog_that_drains_while_a_health_check_is_about_to_is_looked_at_by_nobody(
    module: ModuleType, moment: str, node: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.prolog("41")
    node.log(xid=True)
    then = getattr(module, moment)

    def and_an_epilog_ends(*known: object) -> object:
        monkeypatch.setattr(module, moment, then)
        node.epilog("41")
        explain = node.call("explain", "41")
        for claim in our_drains.our_drains(explain):
            health_check.confirm_claim(explain, claim)
        return then(*known)

    monkeypatch.setattr(module, moment, and_an_epilog_ends)
    for _ in range(3):
        node.health_check()
    assert node.slurm.is_drained


@pytest.mark.parametrize("is_installed_meanwhile", [False, True])
def test_a_squeue_that_does_not_answer_once_drains_no_node_again_that_was_resumed_by_hand(
    is_installed_meanwhile: bool, node: History
) -> None:
    for job in ("41", "42"):
        node.prolog(job)
    node.log(xid=True)
    for job in ("41", "42"):
        if is_installed_meanwhile:
            node.state.forget(f"jobs/{job}")
            node.state.forget("cursor")
        node.epilog(job)
    node.health_check()
    node.wait()
    node.resume()
    node.failing.add("squeue")
    node.health_check()
    node.failing.clear()
    node.health_check()
    assert node.drains == ["epilog 41", "epilog 42"]


def test_taking_back_one_excess_drain_looks_at_none_of_the_others(node: History) -> None:
    for job in ("41", "42", "44"):
        node.prolog(job)
    node.log(xid=True)
    node.epilog("41")
    node.epilog("42")
    node.full_before = node.full_after = FULL
    node.health_check()
    node.health_check()
    node.epilog("44")
    node.full_before = node.full_after = ""
    node.health_check()
    assert node.drains == ["epilog 41", "epilog 42", "health-check"]


def test_one_drain_too_many_is_looked_at_by_nobody_where_slurm_fails_as_it_is_taken_back(node: History) -> None:
    node.log(xid=True)
    node.full_after = FULL
    node.failing.add("scontrol, after it has resumed the node")
    with pytest.raises(SlurmError):
        node.health_check()
    node.full_after = ""
    node.wait()
    node.health_check()
    assert node.drains == ["health-check", "health-check"]


@pytest.mark.parametrize(("mode", "says"), [("drain", "NOT DRAINED, as"), ("observe", "would drain, but")])
def test_what_a_node_would_be_drained_for_is_said_though_slurm_does_not_answer(
    mode: str, says: str, node: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(_: str) -> NoReturn:
        raise SlurmError("scontrol: timed out")

    monkeypatch.setattr(control, "node_state", silent)
    node.settings = replace(node.settings, mode=mode)
    node.log(xid=True)
    with pytest.raises(SlurmError):
        node.health_check()
    assert f"{says} scontrol: timed out: clusterproof: gpu.no_xid: Xid 79" in capsys.readouterr().err


@pytest.mark.parametrize("state", ["IDLE", "DOWN"])
def test_a_node_that_is_out_of_use_is_not_called_undrained_where_slurm_falls_silent_afterwards(
    state: str, node: History, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(*_: object) -> NoReturn:
        raise SlurmError("scontrol: timed out")

    monkeypatch.setattr(health_check, "full_after_claim", silent)
    monkeypatch.setattr(control, "config", silent)
    node.by_hand(state, "slurm")
    node.log(xid=True)
    with pytest.raises(SlurmError):
        node.health_check()
    assert node.slurm.is_unavailable
    assert "NOT DRAINED" not in capsys.readouterr().err


def test_a_drain_that_slurm_has_refused_is_looked_at_by_nobody(node: History) -> None:
    node.log(xid=True)
    node.failing.add("scontrol")
    with pytest.raises(SlurmError):
        node.health_check()
    node.failing.clear()
    node.health_check()
    assert node.drains == ["health-check"]


@pytest.mark.parametrize("failing", ["nothing", "scontrol, after it has resumed the node"])
def test_what_a_health_check_finds_mended_itself_is_looked_at_by_nobody(failing: str, node: History) -> None:
    node.full_before = FULL
    node.health_check()
    node.log(xid=True)
    node.prolog("50")
    node.log(xid=True)
    health_check.record_full_partition(node.call("health-check"), "", 4)
    node.full_before = ""
    node.epilog("50")
    node.xids.pop()  # a reset has cleared the later one
    node.failing.add(failing)
    with contextlib.suppress(SlurmError):
        node.health_check()
    assert not node.slurm.is_drained
    node.wait()
    node.health_check()
    assert node.drains == ["epilog 50", "health-check"]


@pytest.mark.parametrize("drained_by", ["health-check", "epilog 41"])
def test_a_node_that_slurm_did_not_resume_is_resumed_by_the_next_health_check(drained_by: str, node: History) -> None:
    node.prolog("41")
    node.log(xid=True)
    if drained_by == "health-check":
        node.health_check()
    node.epilog("41")
    node.health_check()
    node.xids.clear()
    node.failing.add("scontrol")
    with pytest.raises(SlurmError):
        node.health_check()
    assert node.slurm.is_drained
    node.failing.clear()
    node.wait()
    node.health_check()
    assert (node.slurm.is_drained, node.drains) == (False, [drained_by])


def test_slurm_gets_the_reason_of_an_epilog_that_it_comes_to_after_squeue_did_not_answer(node: History) -> None:
    for job in ("41", "42"):
        node.prolog(job)
    node.log(xid=True)
    node.epilog("41")
    node.epilog("42")
    node.full_after = FULL
    node.failing.add("squeue")
    node.health_check()
    assert not node.slurm.is_drained
    node.failing.clear()
    node.full_after = ""
    node.drained_by_slurm("Epilog error")
    node.health_check()
    assert node.slurm.reason.startswith("clusterproof: gpu.no_xid: ")


def test_a_job_that_ends_after_its_node_was_resumed_by_hand_drains_it_for_nothing_of_before(node: History) -> None:
    node.prolog("41")
    node.log(xid=True)
    node.health_check()
    node.resume()
    node.epilog("41")
    assert node.drains == ["health-check"]
    node.health_check()
    node.health_check()
    assert node.drains == ["health-check"]


def test_a_drain_of_another_boot_that_is_taken_back_too_says_nothing_of_this_boots_log(node: History) -> None:
    node.prolog("41")
    node.log(xid=True)
    node.epilog("41")
    node.health_check()
    name = "drained/epilog-41"
    of_before = {**node.state.read(name), "job": "7", "ends": ["before", 9, 9.0], "boot_id": "before"}
    node.state.write("drained/epilog-7", of_before)
    looked_at = {"gpu.no_xid": node.state.read(name)["ends"]}
    cursor = node.state.read("cursor")
    node.resume()
    our_drains.our_drains(node.call("health-check"))
    assert node.state.names("drained") == ()
    assert (node.state.read("looked_at"), node.state.read("cursor")) == (looked_at, cursor)


def test_a_run_that_began_behind_what_is_still_to_be_evaluated_counts_none_of_that_as_evaluated(node: History) -> None:
    call = node.call("epilog", "41")
    ends = call.cursor
    assert ends is not None
    boot, sequence, seconds = ends
    call.advance((boot, sequence + 2, seconds), (boot, sequence + 4, seconds))
    assert call.cursor == ends
    call.advance(ends, (boot, sequence + 4, seconds))
    assert call.cursor == (boot, sequence + 4, seconds)
