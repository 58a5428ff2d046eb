"""What comes after a job was stopped belongs to its end, and does not explain it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import SACCT, STEPS, XID_79, case_of

STEPPED = "".join(f"2026-03-01 08:10:{second:02d},000 step {second} loss 2.0\n" for second in (10, 20, 29))
STOP = "slurmstepd: error: *** {of} ON gpu001 CANCELLED AT 2026-03-01T08:10:30 DUE TO {why} ***\n"
LISTENER = "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pymp-1/listener-2'\n"
TRACEBACK = f'Traceback (most recent call last):\n  File "connection.py", line 620, in SocketClient\n{LISTENER}'
TORN = {
    "an exception": f"2026-03-01 08:10:33,000 {LISTENER}",
    "a traceback": TRACEBACK,
    "an exception of a rank": f"[rank3]: {LISTENER}",
    "an error of CUDA": "2026-03-01 08:10:33,000 RuntimeError: CUDA error: unspecified launch failure\n",
    "a program that is gone": "/var/spool/slurmd/job77/slurm_script: line 9: deactivate: command not found\n",
    "a file system": "2026-03-01 08:10:34,000 OSError: [Errno 5] Input/output error: '/ckpt/last.pt'\n",
    "a loader": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated. \n" + TRACEBACK,
    "what srun says, then an exception": "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    + TRACEBACK,
}
STATES = {"TIME LIMIT": "TIMEOUT", "PREEMPTION": "PREEMPTED", "JOB REQUEUE": "REQUEUED"}


@pytest.mark.parametrize("torn", TORN.values(), ids=TORN)
@pytest.mark.parametrize(
    ("why", "of"), [("TIME LIMIT", "JOB 77"), ("PREEMPTION", "STEP 77.0"), ("JOB REQUEUE", "JOB 77")]
)
@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("is_dated", [True, False])
def test_what_a_stopped_job_says_as_it_ends_is_not_the_cause(
    torn: str, why: str, of: str, is_recorded: bool, is_dated: bool, tmp_path: Path
) -> None:
    steps = STEPPED if is_dated else STEPPED.replace("2026-03-01 08:10:", "")
    record = {"sacct.txt": SACCT.format(state=STATES[why])} if is_recorded else {}
    case = case_of(tmp_path, {"slurm-77.out": steps + STOP.format(of=of, why=why) + torn, **record})
    assert case.verdict.cause == "stopped"


@pytest.mark.parametrize("torn", [TORN["an exception"], TORN["an error of CUDA"], TORN["a file system"]])
def test_it_is_told_by_its_time_where_only_the_record_says_who_stopped_the_job(torn: str, tmp_path: Path) -> None:
    files = {"rank_3.log": STEPPED + torn, "sacct.txt": SACCT.format(state="TIMEOUT")}
    assert case_of(tmp_path, files).verdict.cause == "stopped"


def test_a_traceback_without_a_time_behind_a_step_that_is_as_late_as_the_limit_is_of_it(tmp_path: Path) -> None:
    files = {"rank_3.log": STEPPED + TRACEBACK, "sacct.txt": SACCT.format(state="TIMEOUT")}
    assert case_of(tmp_path, files).verdict.cause == "stopped"


@pytest.mark.parametrize(("state", "cause"), [("TIMEOUT", "unknown"), ("CANCELLED by 1000", "code")])
def test_which_came_first_is_not_known_of_a_traceback_without_a_time_half_a_minute_before_a_limit(
    state: str, cause: str, tmp_path: Path
) -> None:
    steps = "".join(STEPPED.splitlines(keepends=True)[:1])
    case = case_of(tmp_path, {"rank_3.log": steps + TRACEBACK, "sacct.txt": SACCT.format(state=state)})
    assert case.verdict.cause == cause


def test_which_came_first_is_not_known_where_nothing_but_the_record_has_a_time(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"rank_3.log": TRACEBACK, "sacct.txt": SACCT.format(state="TIMEOUT")})
    assert (case.verdict.cause, case.verdict.rank) == ("unknown", 3)
    assert "no time tells which came first" in case.verdict.why
    stopped = {"slurm-77.out": TRACEBACK + STOP.format(of="JOB 77", why="TIME LIMIT")}
    assert case_of(tmp_path / "by its lines", stopped).verdict.cause == "code"


@pytest.mark.parametrize("at", ["08:05:35", "08:10:20"])
def test_an_exception_before_a_stop_is_the_cause(at: str, tmp_path: Path) -> None:
    own = f"2026-03-01 {at},000 {LISTENER}" + STOP.format(of="JOB 77", why="TIME LIMIT")
    case = case_of(tmp_path, {"slurm-77.out": own, "sacct.txt": SACCT.format(state="TIMEOUT")})
    assert case.verdict.cause == "code"


@pytest.mark.parametrize("at", ["08:10:10", "08:10:20"])
def test_a_rank_that_had_waited_for_ten_minutes_when_the_limit_came_had_hung(at: str, tmp_path: Path) -> None:
    waited = "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL ran for 600020 milliseconds\n"
    output = f"2026-03-01 {at},000 loss\n" + STOP.format(of="JOB 77", why="TIME LIMIT") + waited
    case = case_of(tmp_path, {"slurm-77.out": output, "sacct.txt": SACCT.format(state="TIMEOUT")})
    assert case.verdict.cause == "unknown"


def test_a_gpu_that_fails_behind_a_stop_did_not_end_the_job(tmp_path: Path) -> None:
    output = STEPPED + STOP.format(of="JOB 77", why="TIME LIMIT") + TORN["an exception"]
    log = {"gpu003-dmesg.txt": XID_79.format(time="08:10:35")}
    case = case_of(tmp_path, {"slurm-77.out": output, "sacct.txt": SACCT.format(state="TIMEOUT"), **log})
    assert (case.verdict.cause, case.advice.nodes["gpu003"]) == ("stopped", "test")


def test_what_was_cancelled_from_its_terminal_says_more_behind_it(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"train.log": f"step 7 loss 2\nKeyboardInterrupt\n{TRACEBACK}"})
    assert case.verdict.cause == "stopped"


def test_what_another_rank_writes_behind_an_interrupt_may_have_led_to_it(tmp_path: Path) -> None:
    output = "[rank0]: KeyboardInterrupt\n[rank3]: TypeError: forward() missing 1 required positional argument\n"
    assert case_of(tmp_path, {"train.log": output}).verdict.cause == "code"


LONG_SILENT = STEPS.replace("07:59", "07:39") + STOP.format(of="JOB 77", why="TIME LIMIT")
XID_AT_0740 = XID_79.format(time="07:40:05")


@pytest.mark.parametrize(
    ("files", "why", "suspects"),
    [
        ({}, "it had said nothing for 31 minutes when its time was over", ()),
        ({"gpu003-dmesg.txt": XID_AT_0740}, "long before its time limit was over, gpu003: Xid 79", ("gpu003",)),
    ],
)
def test_the_line_of_a_limit_is_no_sign_of_life_before_it(
    files: dict[str, str], why: str, suspects: tuple[str, ...], tmp_path: Path
) -> None:
    record = {"sacct.txt": SACCT.format(state="TIMEOUT")}
    verdict = case_of(tmp_path, {"slurm-77.out": LONG_SILENT, **record, **files}).verdict
    assert (verdict.cause, verdict.why[: len(why)], verdict.suspects) == ("unknown", why, suspects)
    lively = LONG_SILENT.replace("07:39", "07:59")
    stopped = case_of(tmp_path / "lively", {"slurm-77.out": lively, **record}).verdict
    assert (stopped.cause, stopped.probability) == ("stopped", 0.97)


BEGUN = "2026-03-01 07:00:00,000 INFO training begins\n"
TIMES = "(min, max) time across ranks (ms): 1.0\n" * 2
ITERATION = "2026-03-01 07:{minute:02d}:00,000 iteration {minute}/900 | loss: 2.0\n"


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (BEGUN + "".join(f"loss: {step / 100}\n" for step in range(50)), "stopped"),
        ("world size: 8\n" * 60 + BEGUN + "".join(f"loss: {step / 100}\n" for step in range(50)), "stopped"),
        ("".join(ITERATION.format(minute=minute) + TIMES for minute in range(20)), "unknown"),
    ],
)
@pytest.mark.parametrize("stop", ["", STOP.format(of="JOB 77", why="TIME LIMIT")])
def test_a_job_whose_later_lines_have_no_time_was_not_silent(
    output: str, cause: str, stop: str, tmp_path: Path
) -> None:
    files = {"slurm-77.out": output + stop, "sacct.txt": SACCT.format(state="TIMEOUT")}
    assert case_of(tmp_path, files).verdict.cause == cause
