"""Which findings drain a node, and the reason's text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.integrations.slurm.checking import timeout_s
from clusterproof.integrations.slurm.drains import Drain, drain_of
from clusterproof.integrations.slurm.job import Job, gpus_of
from clusterproof.integrations.slurm.verdict import (
    MAX_REASON,
    PREFIX,
    CheckFinding,
    CheckRun,
    LeftoverOwner,
    cut_short,
    draining,
    later,
    reaches,
    reason_of,
    run_of,
)
from clusterproof.plugins.agent.program import ProbeOptions

LOST = CheckFinding("gpu.gpu_answers", "fail", "GPU 3: the driver says GPU_IS_LOST; expected an answer", ("GPU 3",))
HELD = CheckFinding("gpu.no_leftover_processes", "fail", "held by a process", ("GPU 3",))
LEFT = CheckFinding("host.job_leftovers", "fail", "a process", owners=(LeftoverOwner("40"), LeftoverOwner("41")))
CLAIMED = replace(LEFT, owners=(LeftoverOwner("40"), LeftoverOwner("41", "1000")))
NAMING = CheckFinding(
    "gpu.no_xid", "fail", "Xid 79 at 0000:53:00.0, of job 1 user 2, 1 files of user 2: replace the node"
)
LEAKED = CheckFinding(
    "host.shm_leaked", "fail", "some files", owners=(LeftoverOwner(uid="999"), LeftoverOwner(uid="1000"))
)
HOT = CheckFinding("gpu.temperature", "concern", "GPU 1: 85 °C; expected less than 84 °C")
UNREAD = CheckFinding("gpu.row_remap", "incomplete", "GPU 1: retired pages cannot be counted")
HANGS = CheckFinding(
    "gpu.driver_answers_in_time", "fail", "nvml: no answer within 3 s; expected an answer by the deadline"
)


def run(*findings: CheckFinding) -> CheckRun:
    return CheckRun("boot", 100.0, 0.4, 47, findings, None, ("boot", 7, 99.0))


@pytest.mark.parametrize(
    ("finding", "job", "is_epilog", "late_drains", "drains"),
    [
        (LOST, Job("42"), False, False, True),
        (LOST, Job("42", "1000", frozenset({0})), False, False, True),
        (HOT, Job("42"), False, False, False),
        (UNREAD, Job("42"), False, True, False),
        (HELD, Job("42", "1000", frozenset({3, 4})), False, False, True),
        (HELD, Job("42", "1000", frozenset({0, 1})), False, False, False),
        (HELD, Job("42"), False, False, True),
        (LEFT, Job("41", "1000"), True, False, True),
        (LEFT, Job("42", "1000"), True, False, False),
        (CLAIMED, Job("41", "1000"), True, False, True),
        (CLAIMED, Job("41", "1001"), True, False, False),
        (CLAIMED, Job("42", "1000"), True, False, False),
        (CLAIMED, Job("41"), True, False, True),
        (NAMING, Job("42", "1000"), True, False, True),
        (LEAKED, Job("42", "1000"), True, False, True),
        (LEAKED, Job("42", "1001"), True, False, False),
        (LEAKED, Job("42", "1001"), False, False, True),
        (cut_short(HANGS), Job("42"), False, False, False),
        (cut_short(HANGS), Job("42"), False, True, True),
        (HANGS, Job(), False, False, True),
    ],
    ids=[
        "a fail",
        "a fault of a GPU that the job does not have",
        "a concern",
        "what is incomplete",
        "a process on a GPU of the job's",
        "a process on a GPU of another job's",
        "a process where Slurm deals no GPUs out",
        "what this job has left",
        "what another job has left",
        "what its user has left, and says of itself to be of the job",
        "what another user says to be of the job",
        "what its user says to be of another job",
        "what says to be of the job, where its user is not known",
        "a fault of the hardware, in which a program is named as if it were of other jobs and users",
        "what its user has left in /dev/shm",
        "what another user has left in /dev/shm",
        "what another user has left in /dev/shm, before a job",
        "a driver that was not waited for",
        "a driver that was not waited for, where the settings say so",
        "a driver that was waited for",
    ],
)
def test_only_a_fail_that_concerns_the_job_drains(
    finding: CheckFinding, job: Job, is_epilog: bool, late_drains: bool, drains: bool
) -> None:
    findings = draining(run(HOT, UNREAD, finding), job, late_drains=late_drains, is_epilog=is_epilog)
    assert findings == ((finding,) if drains else ())


def test_what_was_not_waited_for_because_others_were_checking_drains_nothing() -> None:
    late = replace(run(cut_short(HANGS), LOST), is_late=True)
    assert draining(late, Job("42"), late_drains=True) == (LOST,)
    assert run_of(late.to_json()) == late


def test_a_reason_names_the_check_its_evidence_and_what_else_fails() -> None:
    assert reason_of((LOST, HELD)) == (
        "clusterproof: gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST; expected an answer; "
        "also gpu.no_leftover_processes"
    )


@pytest.mark.parametrize(
    ("finding", "gpus", "after"),
    [
        (LOST, frozenset({3}), " (epilog of job 42)"),
        (LOST, None, " (epilog of job 42)"),
        (LOST, frozenset({0}), ""),
        (LEFT, None, ""),
    ],
    ids=["of its GPU", "of GPUs that Slurm does not deal out", "of the GPU of another job", "names a job itself"],
)
def test_a_reason_names_no_job_for_the_gpu_of_another(
    finding: CheckFinding, gpus: frozenset[int] | None, after: str
) -> None:
    reason = reason_of((finding,), Job("42", "1000", gpus))
    assert reason.removeprefix(f"{PREFIX}{finding.line}") == after


@given(st.text(), st.text())
def test_whatever_a_check_says_the_reason_is_one_printable_line_of_ours(check: str, message: str) -> None:
    reason = reason_of((CheckFinding(check, "fail", message), CheckFinding(message, "fail", check)), Job("42"))
    assert reason.startswith(PREFIX)
    assert reason.isprintable()
    assert len(reason) <= MAX_REASON
    assert not reason.startswith(("Action:Reboot", "Action:Replace"))


@pytest.mark.long
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_record_that_is_none_is_no_run(data: object) -> None:
    assert run_of({"findings": data, "begins": data}) is None


def test_a_run_is_read_as_it_was_written() -> None:
    kept = run(LOST, UNREAD, CLAIMED, LEAKED)
    assert run_of(json.loads(json.dumps(kept.to_json()))) == kept


def test_a_drain_keeps_of_its_findings_what_every_version_reads() -> None:
    drain = Drain("epilog", "41", (CLAIMED, LOST), f"{PREFIX}x", None, 7.0)
    kept = json.loads(json.dumps(drain.to_json()))
    assert kept["findings"][0] == {"check": "host.job_leftovers", "verdict": "fail", "message": "a process"}
    bare = tuple(CheckFinding(finding.check, finding.verdict, finding.message) for finding in drain.findings)
    assert drain_of(kept) == replace(drain, findings=bare)


@pytest.mark.parametrize(
    ("one", "other", "furthest"),
    [
        (None, ("b", 5, 1.0), ("b", 5, 1.0)),
        (("b", 5, 1.0), None, ("b", 5, 1.0)),
        (("b", 5, 1.0), ("b", 3, 0.5), ("b", 5, 1.0)),
        (("a", 9, 9.0), ("b", 3, 0.5), ("b", 3, 0.5)),
    ],
)
def test_the_later_of_two_cursors_counts_and_the_newer_of_two_boots(
    one: object, other: object, furthest: object
) -> None:
    assert later(one, other) == furthest  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other", "does"),
    [
        (None, None, True),
        (None, ("b", 3, 0.5), True),
        (("b", 3, 0.5), None, False),
        (("b", 3, 0.5), ("b", 5, 1.0), True),
        (("b", 5, 1.0), ("b", 3, 0.5), False),
        (("a", 3, 0.5), ("b", 5, 1.0), False),
    ],
)
def test_a_log_read_from_a_cursor_holds_what_comes_after_a_later_one(one: object, other: object, does: bool) -> None:
    assert reaches(one, other) is does  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("listed", "gpus"),
    [("0,1", {0, 1}), ("0-2,7", {0, 1, 2, 7}), ("", None), (None, None), ("GPU-ad91baf9", None), ("0-99999999", None)],
)
def test_slurm_job_gpus_is_a_list_of_numbers(listed: str | None, gpus: set[int] | None) -> None:
    assert gpus_of(listed) == gpus


@pytest.mark.parametrize(("deadline_s", "collector_s"), [(3, 1 / 3), (5, 1.0), (8, 2.0), (40, 5.0)])
def test_all_evidence_comes_before_the_deadline_and_the_health_check_has_the_time_of_a_run_by_hand(
    deadline_s: float, collector_s: float
) -> None:
    assert timeout_s(deadline_s) == collector_s
    options = ProbeOptions(collector_s=collector_s)
    assert options.deadline_s("nvml") < deadline_s - 1
    assert collector_s <= ProbeOptions().collector_s


@pytest.mark.parametrize(
    ("found", "is_reusable"),
    [
        ((), True),
        ((HOT, UNREAD), True),
        ((LOST,), False),
        ((cut_short(replace(HANGS, check="node.evidence_complete")),), False),
    ],
)
def test_a_verdict_serves_further_jobs_where_nothing_failed_and_all_evidence_came(
    found: tuple[CheckFinding, ...], is_reusable: bool
) -> None:
    assert run(*found).is_reusable is is_reusable
