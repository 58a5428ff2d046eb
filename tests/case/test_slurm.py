"""Slurm's answers about a job, and the files its record names, which its owner may have pointed at another user's."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from clusterproof.plugins.case import CaseError, scheduler, slurm
from clusterproof.plugins.case.advice import Case, opened_case
from clusterproof.plugins.case.assembled import joined
from clusterproof.plugins.case.builder import CaseBuilder

NO_ACCOUNTING = (1, "Slurm accounting storage is disabled\n")
NO_JOB = (1, "slurm_load_jobs error: Invalid job id specified\n")
RECORD = """\
JobId=77 JobName=x JobState=TIMEOUT NodeList=gpu009
   UserId=u({owner}) GroupId=u(1000) MCS_label=N/A
   JobState={state} Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0
   StartTime=2026-03-01T07:00:00 EndTime=2026-03-01T08:00:00 Deadline=N/A
   NodeList=gpu[001-002]
   Command=/home/u/a b.sh JobState=PREEMPTED
   StdErr={out}
   StdOut={out}
"""


class Answers:
    """Slurm's commands, each with its answer."""

    def __init__(self, scontrol: tuple[int, str], sacct: tuple[int, str] = NO_ACCOUNTING, sinfo: str = "") -> None:
        self.by_name = {"scontrol": scontrol, "sacct": sacct, "sinfo": (0, sinfo)}

    def __call__(self, command: Sequence[str]) -> tuple[int, str]:
        return self.by_name[command[0]]


def case_of(answers: Answers) -> Case:
    builder = CaseBuilder()
    slurm.read_job("77", builder, 0.0, answers)
    return opened_case(joined("job 77", builder))


def record(out: Path, state: str = "FAILED", owner: int | None = None) -> tuple[int, str]:
    return 0, RECORD.format(out=out, state=state, owner=os.geteuid() if owner is None else owner)


def test_the_output_that_the_record_names_is_read_once(tmp_path: Path) -> None:
    out = tmp_path / "slurm 77.out"
    out.write_text("KeyError: 'image'\n")
    case = case_of(Answers(record(out)))
    assert (case.verdict.cause, case.collected.read) == ("code", ("1 record of Slurm", "1 file of output"))
    assert case.collected.job.nodes == ("gpu001", "gpu002")


def test_output_without_a_year_is_of_the_year_of_its_job(tmp_path: Path) -> None:
    out = tmp_path / "slurm-77.out"
    out.write_text("[E0101 00:00:10.500000 12 x.cpp:1] KeyError: 'image'\n")
    status, text = record(out)
    ended = text.replace("EndTime=2026-03-01T08:00:00", "EndTime=2020-01-01T00:10:30")
    (event,) = [event for event in case_of(Answers((status, ended))).collected.events if event.rank is None]
    assert event.when.begins == 1_577_836_810.5


@pytest.mark.parametrize("state", ["PREEMPTED", "OUT_OF_MEMORY"])
def test_a_job_is_in_the_state_that_slurm_says_not_in_that_of_its_name(state: str, tmp_path: Path) -> None:
    case = case_of(Answers(record(tmp_path / "none", state)))
    assert (case.collected.job.state, case.verdict.cause != "unknown") == (state, True)


NAME = "x\n   UserId=root(0) GroupId=root(0)\n   JobState=NODE_FAIL\n   NodeList=gpu007\n   StdOut=/etc/shadow"
WHOLE = f"{NAME}\n   Requeue=0\n   StartTime=2026-03-01T07:00:00\n\nJobId=78 ArrayJobId=77 ArrayTaskId=1 JobName=y"


@pytest.mark.parametrize("ends", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_what_ends_a_line_for_python_alone_begins_none_of_slurms(ends: str, tmp_path: Path) -> None:
    status, text = record(tmp_path / "none", "FAILED")
    name = NAME.partition("\n   StdOut")[0].replace("\n", ends)
    job = case_of(Answers((status, text.replace("JobName=x JobState", f"JobName={name} JobState")))).collected.job
    assert (job.state, job.nodes) == ("FAILED", ("gpu001", "gpu002"))


@pytest.mark.parametrize("name", [NAME, WHOLE], ids=["lines", "a record"])
def test_the_name_of_a_job_puts_nothing_in_place_of_its_record(name: str, tmp_path: Path) -> None:
    status, text = record(tmp_path / "none")
    forged = Answers((status, text.replace("JobName=x JobState", f"JobName={name} JobState")))
    forged.by_name["squeue"] = (0, "77\n")
    with pytest.raises(CaseError, match=f"Slurm could not be asked for job 77: scontrol: {scheduler.OWNER_LINES}"):
        case_of(forged)
    forged.by_name["sacct"] = (0, rows("77"))
    case = case_of(forged)
    assert (case.collected.job.nodes, case.collected.read) == (("gpu001",), ("1 record of Slurm",))
    assert any(f"scontrol: {scheduler.OWNER_LINES}: where its output is" in gap for gap in case.collected.missing)


def test_output_that_is_no_text_is_said_to_be_none(tmp_path: Path) -> None:
    out = tmp_path / "model.pt"
    out.write_bytes(b"PK\3\4\0\xff")
    assert "model.pt: it is no text, and is not read" in case_of(Answers(record(out))).collected.missing


def test_a_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    out = tmp_path / "shadow"
    out.write_text("KeyError: 'secret'\n")
    case = case_of(Answers(record(out, owner=os.geteuid() + 1)))
    assert case.verdict.cause == "unknown"
    assert any("is not of the job's owner" in gap for gap in case.collected.missing)
    assert not any("secret" in event.words for event in case.collected.events)


OWNERS = {
    "DOMAIN\\jane doe(1)": True,
    "jane doe({own})": False,
    "jane doe": True,
    f"{'u' * 257}({{own}})": True,
    "(1)": True,
}


@pytest.mark.parametrize(("name", "is_refused"), OWNERS.items())
def test_a_file_is_read_only_of_the_owner_that_a_record_names(name: str, is_refused: bool, tmp_path: Path) -> None:
    """Users of a directory have blanks in their names."""
    out = tmp_path / "shadow"
    out.write_text("KeyError: 'secret'\n")
    status, text = record(out)
    owner = f"UserId={name.format(own=os.geteuid())} GroupId"
    case = case_of(Answers((status, text.replace(f"UserId=u({os.geteuid()}) GroupId", owner))))
    assert any("secret" in event.words for event in case.collected.events) != is_refused
    assert any(one.startswith("shadow: ") for one in case.collected.missing) == is_refused


def test_a_link_in_the_place_of_the_output_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("KeyError: 'secret'\n")
    out = tmp_path / "slurm-77.out"
    out.symlink_to(secret)
    case = case_of(Answers(record(out)))
    assert any("slurm-77.out" in gap and "link" in gap for gap in case.collected.missing)
    assert case.collected.events == ()


def test_a_node_that_does_not_respond_is_a_suspect_and_one_that_was_drained_by_hand_is_none(tmp_path: Path) -> None:
    rows = "gpu001|drained|2026-03-01T07:30:00|loud fan\ngpu002|down*|2026-03-01T07:59:00|Not responding\n"
    case = case_of(Answers(record(tmp_path / "none", "NODE_FAIL"), sinfo=rows))
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == ("unknown", (), ("gpu002",))
    assert case.advice.exclude == ("gpu002",)


@pytest.mark.parametrize(
    ("row", "suspects"),
    [
        ("gpu002|down|2026-03-01T08:09:00|Node unexpectedly rebooted", ("gpu002",)),
        ("gpu002|drained|2026-03-01T08:03:00|gres/gpu count reported lower than configured (7 < 8)", ("gpu002",)),
        ("gpu002|inval|2026-03-01T08:03:00|gres/gpu count too low (7 < 8)", ("gpu002",)),
        ("gpu002|draining|2026-03-01T07:59:00|gres/gpu count too low (7 < 8)", ("gpu002",)),
        ("gpu002|fail|2026-03-01T08:01:00|Action:Replace", ("gpu002",)),
        ("gpu002|idle|2026-03-01T08:01:00|Action:Replace", ()),  # kept since it was resumed
        ("gpu002|drained|2026-03-01T09:03:00|gres/gpu count too low (7 < 8)", ()),
        ("gpu002|drained|2026-03-01T08:03:00|Kill task failed", ()),
        ("gpu002|drained|2026-03-01T08:03:00|Low RealMemory (reported:435161 < 100.00% of configured:443596)", ()),
        ("gpu002|drained|2026-03-01T08:03:00|batch job complete failure", ()),
    ],
)
def test_a_node_is_suspected_for_what_slurm_itself_found_of_it(
    row: str, suspects: tuple[str, ...], tmp_path: Path
) -> None:
    case = case_of(Answers(record(tmp_path / "none"), sinfo=f"gpu001|idle|Unknown|none\n{row}\n"))
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == ("unknown", (), suspects)


def test_a_job_that_slurm_cancelled_as_a_prolog_failed_was_stopped_by_nobody(tmp_path: Path) -> None:
    rows = "gpu001|drained|2026-03-01T08:00:00|Prolog error\ngpu002|idle|Unknown|none\n"
    case = case_of(Answers(record(tmp_path / "none", "CANCELLED"), sinfo=rows))
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == ("unknown", (), ("gpu001",))
    out = tmp_path / "resumed"  # the node is idle again; only the job's own output shows the cause
    out.write_text("Error running slurm prolog: 1\n")
    case = case_of(Answers(record(out, "CANCELLED")))
    assert (case.verdict.cause, case.verdict.suspects) == ("unknown", ())
    for another in (rows.replace("08:00:00", "07:50:00"), rows.replace("drained", "idle")):
        assert case_of(Answers(record(tmp_path / "none", "CANCELLED"), sinfo=another)).verdict.cause == "stopped"


def test_accounting_that_is_not_there_is_said_and_what_saves_kernel_logs(tmp_path: Path) -> None:
    missing = case_of(Answers(record(tmp_path / "none"))).collected.missing
    assert any("accounting storage is disabled: only scontrol knows" in gap for gap in missing)
    assert any("journalctl -k -o short-iso-precise --since '2026-03-01 07:00:00 UTC'" in gap for gap in missing)


@pytest.mark.parametrize(
    ("scontrol", "said"),
    [
        (
            NO_JOB,
            "Slurm knows no job 77: scontrol: slurm_load_jobs error: Invalid job id specified; sacct: Slurm accounting",
        )
    ],
)
def test_a_job_that_nobody_knows_is_an_error(scontrol: tuple[int, str], said: str) -> None:
    with pytest.raises(CaseError, match=said):
        case_of(Answers(scontrol))


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_job_that_has_not_ended_is_an_error(state: str, tmp_path: Path) -> None:
    with pytest.raises(CaseError, match=f"job 77 is {state}; expected one that has ended"):
        case_of(Answers(record(tmp_path / "none", state)))


def test_accounting_alone_says_that_the_place_of_the_output_is_not_known() -> None:
    row = "77|TIMEOUT|0:0|0:0|2026-03-01T07:00:00|2026-03-01T08:00:00|gpu001\n"
    case = case_of(Answers(NO_JOB, (0, f"{slurm.COLUMNS.replace(',', '|')}\n{row}")))
    assert case.verdict.cause == "stopped"
    assert any("--logs FOLDER" in gap for gap in case.collected.missing)


def rows(*numbers: str) -> str:
    records = (f"{number}|TIMEOUT|0:0|0:0|2026-03-01T07:00:00|2026-03-01T08:00:00|gpu001\n" for number in numbers)
    return f"{slurm.COLUMNS.replace(',', '|')}\n{''.join(records)}"


def test_of_an_array_one_task_is_to_be_named() -> None:
    with pytest.raises(CaseError, match="job 77 is an array; expected one of its tasks: 77_0, 77_1"):
        case_of(Answers(NO_JOB, (0, rows("77_0", "77_1"))))


def test_the_components_of_a_heterogeneous_job_are_known_by_its_number() -> None:
    assert case_of(Answers(NO_JOB, (0, rows("77+0", "77+1")))).collected.job.number == "77"


def test_the_names_of_columns_are_no_answer() -> None:
    with pytest.raises(CaseError, match="sacct: no answer"):
        case_of(Answers(NO_JOB, (0, rows())))


INVALID = "slurm_load_jobs error: Invalid job id specified\n"
UNREACHED = "scontrol: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"


@pytest.mark.parametrize(
    ("scontrol", "sacct", "message"),
    [
        ((1, INVALID), NO_ACCOUNTING, "Slurm knows no job 77: scontrol: slurm_load_jobs error: Invalid job id"),
        (
            (1, UNREACHED),
            (0, f"{slurm.COLUMNS.replace(',', '|')}\n"),
            "Slurm knows no job 77: scontrol: scontrol: error",
        ),
        ((1, UNREACHED), (0, ""), "Slurm knows no job 77: "),
        (
            (1, UNREACHED),
            (1, "sacct: error: Unknown host\n"),
            "Slurm could not be asked for job 77: scontrol: scontrol: e",
        ),
        (
            (127, "scontrol is not installed here"),
            NO_ACCOUNTING,
            "Slurm could not be asked for job 77: scontrol: scont",
        ),
    ],
)
def test_a_job_is_unknown_only_where_slurm_said_so(
    scontrol: tuple[int, str], sacct: tuple[int, str], message: str
) -> None:
    with pytest.raises(CaseError, match=message):
        case_of(Answers(scontrol, sacct))


@pytest.mark.long
@pytest.mark.parametrize("runs", ["exec /bin/sleep 60", "/bin/sleep 60; echo late", "/bin/sleep 60 & exit 1"])
def test_a_command_that_is_not_there_and_one_that_does_not_answer_are_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.run_command(("sacct",)) == (slurm.NOT_INSTALLED, "sacct is not installed here")
    (tmp_path / "sacct").write_text(f"#!/bin/sh\n{runs}\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setattr(slurm, "LIMIT_S", 0.2)
    status, text = slurm.run_command(("sacct",))
    assert (status != 0, text) == (True, "")


@pytest.mark.long
def test_times_are_asked_for_by_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho $TZ\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.run_command(("scontrol",)) == (0, "UTC\n")


def test_a_users_own_listing_of_nodes_hides_none_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SINFO_PARTITION", "debug")
    (tmp_path / "sinfo").write_text('#!/bin/sh\necho "of ${SINFO_PARTITION:-all partitions}"\n')
    (tmp_path / "sinfo").chmod(0o755)
    assert slurm.run_command(slurm.NODES) == (0, "of all partitions\n")
