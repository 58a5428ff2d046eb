"""Jobs stopped by a limit, a scheduler or a person, unless they had hung before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import RUNS_ON, SACCT, STEPS, STOP, WATCHDOG_OF_1, XID_79, case_of


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("TIMEOUT", "its time limit was over"),
        ("PREEMPTED", "a job of higher priority took its nodes"),
        ("CANCELLED by 1000", "it was cancelled"),
        ("DEADLINE", "it was cancelled"),
    ],
)
def test_the_state_says_who_stopped_a_job_that_ran(state: str, message: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {"rank_0.log": RUNS_ON, "sacct.txt": SACCT.format(state=state)})
    assert (case.verdict.cause, case.verdict.why) == ("stopped", message)
    assert case.advice.restart == "yes"
    assert set(case.advice.nodes.values()) == {"not known"}


def test_a_job_that_had_hung_before_it_was_cancelled_is_unknown(tmp_path: Path) -> None:
    files = {"rank_1.log": STEPS + WATCHDOG_OF_1, "sacct.txt": SACCT.format(state="CANCELLED by 0")}
    assert case_of(tmp_path, files).verdict.cause == "unknown"


def test_a_job_that_was_silent_long_before_its_limit_had_hung(tmp_path: Path) -> None:
    early = STEPS.replace("07:59", "07:20")
    case = case_of(tmp_path, {"rank_0.log": early, "sacct.txt": SACCT.format(state="TIMEOUT")})
    assert case.verdict.cause == "unknown"
    assert "it hung" in case.verdict.why


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED by 1000"])
@pytest.mark.parametrize(("minute", "cause"), [("07:30", "unknown"), ("08:09", "stopped")])
def test_an_exception_long_before_a_stop_is_none_of_it(minute: str, cause: str, state: str, tmp_path: Path) -> None:
    line = f"2026-03-01 {minute}:00,000 "
    raised = f"{line}Traceback (most recent call last):\nRuntimeError: shard 7 has another schema\n{line}waits\n"
    files = {"rank_1.log": raised + RUNS_ON.replace("iteration", "waits"), "sacct.txt": SACCT.format(state=state)}
    assert case_of(tmp_path, files).verdict.cause == cause


def test_sigkill_at_the_limit_is_no_want_of_memory(tmp_path: Path) -> None:
    killed = "srun: error: gpu002: task 3: Killed\n"
    files = {"rank_0.log": RUNS_ON, "slurm-77.out": killed, "sacct.txt": SACCT.format(state="TIMEOUT")}
    assert case_of(tmp_path, files).verdict.cause == "stopped"


def test_sigkill_without_a_record_of_its_sender_is_unknown(tmp_path: Path) -> None:
    killed = "srun: error: gpu002: task 3: Killed\n"
    case = case_of(tmp_path, {"slurm-77.out": killed, "sacct.txt": SACCT.format(state="FAILED")})
    assert (case.verdict.cause, case.verdict.rank) == ("unknown", 3)


def test_the_failed_node_is_the_one_that_srun_names_not_the_one_that_prints(tmp_path: Path) -> None:
    output = (
        "srun: error: Node failure on gpu004\nsrun: error: gpu001: task 0: Terminated\n"
        "0: slurmstepd-gpu001: error: *** STEP 77.0 ON gpu001 CANCELLED AT 2026-03-01T08:10:00 DUE TO NODE FAILURE, "
        "SEE SLURMCTLD LOG FOR DETAILS ***\n"
    )
    case = case_of(tmp_path, {"slurm-77.out": output, "sacct.txt": SACCT.format(state="NODE_FAIL")})
    assert (case.verdict.cause, case.verdict.suspects) == ("unknown", ("gpu004",))
    assert case.advice.nodes["gpu001"] == "not known"


LOST_DAEMON = (
    "ORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[16919,0],0] on node gpu001\n"
    "  Remote daemon: [[16919,0],3] on node gpu004\n\nThis is usually due to either a failure of the TCP network\n"
)


@pytest.mark.parametrize(
    ("state", "cause", "suspects"), [("FAILED", "unknown", ("gpu004",)), ("CANCELLED by 1000", "stopped", ())]
)
@pytest.mark.parametrize("name", ["[16919,0]", "prterun-gpu001-12@0"], ids=["Open MPI 4", "Open MPI 5"])
def test_a_node_whose_daemon_mpirun_lost_is_a_suspect_unless_the_job_was_stopped(
    name: str, state: str, cause: str, suspects: tuple[str, ...], tmp_path: Path
) -> None:
    lost = LOST_DAEMON.replace("[16919,0]", name)
    case = case_of(tmp_path, {"slurm-77.out": RUNS_ON + lost, "sacct.txt": SACCT.format(state=state)})
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == (cause, (), suspects)


AGENT = "torch/distributed/elastic/agent/server/api.py:739] "
SIGNALLED = f"W0301 08:10:30.000000 1105 {AGENT}Received {{signal}} death signal, shutting down workers\n"
PASSED_ON = "W0301 08:10:30.100000 1105 multiprocessing/api.py:1012] Sending process 1139 closing signal SIGTERM\n"
RAISED = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1105 got signal: 15\n"
FROM_OUTSIDE = "torchrun was told to stop by a signal from outside of it; the log does not say who sent it"
RECORD = SACCT.format(state="FAILED")  # gives lines their year


@pytest.mark.parametrize("signal", ["15", "Signals.SIGTERM", "1", "Signals.SIGHUP", "2"])
def test_a_launcher_that_was_told_to_stop_was_stopped_from_outside(signal: str, tmp_path: Path) -> None:
    output = RUNS_ON + SIGNALLED.format(signal=signal) + PASSED_ON + RAISED
    verdict = case_of(tmp_path, {"job.err": output, "sacct.txt": RECORD}).verdict
    assert (verdict.cause, verdict.why, verdict.probability) == ("stopped", FROM_OUTSIDE, 0.75)


def test_a_warning_does_not_hide_that_a_launcher_was_told_to_stop(tmp_path: Path) -> None:
    warned = "2026-03-01 08:10:19,000 WARNING data.py: KeyError: 'caption', left out\n"
    output = warned + RUNS_ON + SIGNALLED.format(signal=15) + PASSED_ON + RAISED
    assert case_of(tmp_path, {"job.err": warned + SIGNALLED.format(signal=15)}).verdict.why == FROM_OUTSIDE
    assert case_of(tmp_path, {"job.err": output, "sacct.txt": RECORD}).verdict.why == FROM_OUTSIDE


def test_a_launcher_that_passes_a_signal_on_as_a_rank_failed_was_not(tmp_path: Path) -> None:
    failed = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nRoot Cause (first observed failure):\n"
        "  time      : 2026-03-01_08:10:31\n  host      : gpu002\n  rank      : 3 (local_rank: 1)\n"
        "  exitcode  : 1 (pid: 812)\n"
    )
    verdict = case_of(tmp_path, {"job.err": RUNS_ON + PASSED_ON + failed, "sacct.txt": RECORD}).verdict
    assert (verdict.cause, verdict.rank) == ("unknown", 3)


@pytest.mark.parametrize(
    "before",
    [
        "2026-03-01 08:10:29,500 [rank2]: ncclRemoteError: Connection closed by remote peer gpu003\n",
        "srun: error: gpu003: task 4: Exited with exit code 1\n",
        "srun: error: gpu003: task 4: Killed\n",
        WATCHDOG_OF_1,
    ],
    ids=["a peer had ended", "a task had failed", "a task was killed", "a rank had waited in vain"],
)
def test_a_launcher_that_was_told_to_stop_after_others_had_ended_says_nothing_of_why(
    before: str, tmp_path: Path
) -> None:
    output = RUNS_ON + before + SIGNALLED.format(signal="15") + PASSED_ON + RAISED
    assert case_of(tmp_path, {"job.err": output, "sacct.txt": RECORD}).verdict.cause == "unknown"


def test_who_told_a_launcher_to_stop_is_said_where_the_record_has_it(tmp_path: Path) -> None:
    files = {"job.err": RUNS_ON + SIGNALLED.format(signal="15"), "sacct.txt": SACCT.format(state="TIMEOUT")}
    assert case_of(tmp_path, files).verdict.why == "its time limit was over"


def test_a_job_that_had_made_no_step_for_long_when_it_was_told_to_stop_had_hung(tmp_path: Path) -> None:
    output = RUNS_ON.replace(" 08:10", " 07:20") + SIGNALLED.format(signal="15")
    verdict = case_of(tmp_path, {"job.err": output, "sacct.txt": RECORD}).verdict
    assert (verdict.cause, verdict.why) == (
        "unknown",
        "it had made no step for 50 minutes when it was told to stop: it hung",
    )


@pytest.mark.parametrize(
    ("hour", "means"),
    [("06:10", "it hung, or its times are of another zone than those of its scheduler"), ("06:20", "it hung")],
)
def test_a_silence_of_whole_hours_may_be_between_two_zones(hour: str, means: str, tmp_path: Path) -> None:
    limit = STOP.format(of="JOB 77", at="08:10:35", why="TIME LIMIT")
    verdict = case_of(tmp_path, {"slurm-77.out": RUNS_ON.replace(" 08:10", f" {hour}") + limit}).verdict
    assert (verdict.cause, verdict.why.partition(": ")[2]) == ("unknown", means)


CANCELLED = (
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    "slurmstepd: error: *** STEP 77.0 ON gpu001 CANCELLED AT 2026-03-01T08:10:35 ***\n"
    "slurmstepd: error: *** JOB 77 ON gpu001 CANCELLED AT 2026-03-01T08:10:35{why} ***\n"
)


@pytest.mark.parametrize("why", ["", " DUE to SIGNAL Terminated"])
def test_a_job_whose_script_slurm_ends_was_cancelled(why: str, tmp_path: Path) -> None:
    verdict = case_of(tmp_path, {"slurm-77.out": RUNS_ON + CANCELLED.format(why=why)}).verdict
    assert (verdict.cause, verdict.probability) == ("stopped", 0.75)
    assert verdict.why.startswith("Slurm ended its script, as a person or a program had cancelled it")


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ("srun: error: gpu003: task 4: Exited with exit code 1\n", ""),
        (WATCHDOG_OF_1, ""),
        ("", " DUE TO TASK FAILURE"),
    ],
    ids=["a task had failed", "a rank had waited in vain", "of its step alone"],
)
def test_a_job_that_had_failed_when_it_was_cancelled_is_unknown(before: str, why: str, tmp_path: Path) -> None:
    output = RUNS_ON + before + CANCELLED.format(why=why)
    assert case_of(tmp_path, {"slurm-77.out": output}).verdict.cause == "unknown"


def test_a_file_system_that_a_node_lost_before_explains_why_a_job_was_cancelled(tmp_path: Path) -> None:
    lost = "2026-03-01T08:00:10,000000+00:00 LustreError: 167-0: fs-MDT0000: This client was evicted by fs-MDT0000\n"
    files = {"slurm-77.out": STEPS + CANCELLED.format(why=""), "gpu003-dmesg.txt": lost, "sacct.txt": RECORD}
    assert case_of(tmp_path, files).verdict.cause == "storage"


@pytest.mark.parametrize("between", ["", "2026-03-01 07:30:00,000 a checkpoint is written\n"])
def test_a_job_whose_steps_have_no_time_is_not_said_to_have_hung(between: str, tmp_path: Path) -> None:
    began = "2026-03-01 05:00:00,000 [INFO] [config.py:958:print] zero_config\n"
    steps = "".join(f"{{'loss': 2.0, 'epoch': {step}.0}}\n" for step in range(20))
    output = began + steps + between + steps + SIGNALLED.format(signal="15")
    assert case_of(tmp_path, {"job.err": output, "sacct.txt": RECORD}).verdict.why == FROM_OUTSIDE


def test_a_bar_beside_steps_with_times_hides_no_hang(tmp_path: Path) -> None:
    bar = "Epoch 0:  3%|#   | {step}/900 [00:31<14:00,  1.0it/s]\n"
    steps = [f"2026-03-01 06:59:{step:02d},000 step {step} loss 2.0\n" for step in range(40)]
    bars = [bar.format(step=step) for step in range(40)]
    stop = SIGNALLED.format(signal="15")
    hung = "it had made no step for 71 minutes when it was told to stop: it hung"
    both = "".join(step + bar for step, bar in zip(steps, bars, strict=True))
    assert case_of(tmp_path / "one", {"job.err": both + stop, "sacct.txt": RECORD}).verdict.why == hung
    apart = {"job.out": "".join(steps), "job.err": "".join(bars) + stop, "sacct.txt": RECORD}
    assert case_of(tmp_path / "two", apart).verdict.why == hung
    went_on = both + "".join(bar.format(step=step) for step in range(40, 60))
    assert case_of(tmp_path / "went on", {"job.err": went_on + stop, "sacct.txt": RECORD}).verdict.why == FROM_OUTSIDE


@pytest.mark.parametrize(
    "after",
    [WATCHDOG_OF_1, "2026-03-01 08:10:03,100 [rank1]: Connection reset by peer\n"],
    ids=["a wait", "a peer's end"],
)
def test_a_stop_long_before_what_ranks_say_of_their_end_is_of_another_run(after: str, tmp_path: Path) -> None:
    cancelled = CANCELLED.format(why="").replace("T08:10:35", "T06:00:00")
    first = "".join(f"2026-03-01 05:59:{second},000 loading\n" for second in range(10, 60))
    again = "".join(f"2026-03-01 {6 + minute // 60:02d}:{minute % 60:02d}:10,000 working\n" for minute in range(2, 130))
    assert case_of(tmp_path, {"train.log": first + cancelled + again + after}).verdict.cause == "unknown"


def test_evidence_without_a_time_is_said_against_a_stop(tmp_path: Path) -> None:
    log = "[    0.000000] Linux version 6.8.0\n[ 5000.100000] " + XID_79.partition(" ")[2]
    files = {"job.err": RUNS_ON + SIGNALLED.format(signal="15"), "gpu003-dmesg.txt": log, "sacct.txt": RECORD}
    verdict = case_of(tmp_path, files).verdict
    assert (verdict.cause, verdict.against) == ("stopped", ("gpu003: Xid 79, GPU has fallen off the bus",))
