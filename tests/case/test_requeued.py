"""Jobs that ran before in the same file, or ended near a stop: told apart by times, or else by the lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.case.files import CUDA_OF_3, RUNS_ON, SACCT, STEPS, STOP, XID_79, case_of

STEPPED = STEPS.replace("07:59", "05:59")  # the next run reached no step
FIRST_RUN = STEPPED + STOP.format(of="JOB 77", why="PREEMPTION", at="06:00:00")
SECOND_RUN = "2026-03-01 07:00:40,000 loading\n"
AFTER_ALL = {
    "a GPU's": CUDA_OF_3,
    "code's": "2026-03-01 08:00:02,100 [rank3] ValueError: shard 7\n",
    "memory's": "2026-03-01 08:00:02,100 [rank3] torch.OutOfMemoryError: CUDA out of memory.\n",
    "a disk's": "2026-03-01 08:00:02,100 [rank3] OSError: [Errno 28] No space left on device\n",
}
FAILED = {"sacct.txt": SACCT.format(state="FAILED")}


@pytest.mark.parametrize(
    ("output", "cause"),
    list(zip(AFTER_ALL.values(), ("unknown", "code", "resources", "storage"), strict=True)),
    ids=AFTER_ALL,
)
@pytest.mark.parametrize("why", ["PREEMPTION", "JOB REQUEUE", "TIME LIMIT"])
@pytest.mark.parametrize("record", [FAILED, {}], ids=["with a record", "without"])
def test_what_a_job_says_hours_after_it_was_requeued_is_of_its_next_run(
    output: str, cause: str, why: str, record: dict[str, str], tmp_path: Path
) -> None:
    first = STEPPED + STOP.format(of="JOB 77", why=why, at="06:00:00")
    case = case_of(tmp_path, {"slurm-77.out": first + SECOND_RUN + output, **record})
    assert case.verdict.cause == cause


@pytest.mark.parametrize("said", [AFTER_ALL["a GPU's"], AFTER_ALL["memory's"]])
def test_a_gpu_that_broke_in_the_next_run_is_to_be_drained(said: str, tmp_path: Path) -> None:
    joined = CUDA_OF_3.splitlines(keepends=True)[0]
    log = {"gpu003-dmesg.txt": XID_79.format(time="08:00:01")}
    case = case_of(tmp_path, {"slurm-77.out": FIRST_RUN + SECOND_RUN + joined + said, **FAILED, **log})
    assert (case.verdict.standing, case.verdict.nodes) == ("established", ("gpu003",))


JOINED = "{node}:10:20 [1] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 1\n"


def test_what_made_an_earlier_run_suspicious_is_nothing_of_the_next(tmp_path: Path) -> None:
    earlier = "2026-03-01 05:59:50,000 [rank3] RuntimeError: No CUDA GPUs are available\n"
    case = case_of(tmp_path, {"slurm-77.out": earlier + FIRST_RUN + SECOND_RUN + AFTER_ALL["code's"]})
    assert (case.verdict.cause, case.verdict.rank) == ("code", 3)
    assert any("a rank sees no GPU" in words for words in case.verdict.against)


def test_where_ranks_of_an_earlier_run_were_is_nothing_of_the_next(tmp_path: Path) -> None:
    ended = "srun: error: gpu009: task 5: Exited with exit code 1\n"
    broken = "2026-03-01 08:00:02,100 [rank3] RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    first = JOINED.format(node="gpu009") + ended + FIRST_RUN
    case = case_of(tmp_path, {"slurm-77.out": first + SECOND_RUN + JOINED.format(node="gpu003") + broken})
    assert (case.verdict.suspects, [lead.rank for lead in case.collected.leads]) == (("gpu003",), [])


SAVING = "".join(f"2026-03-01 06:{second // 60:02d}:{second % 60:02d},000 saving\n" for second in range(5, 500, 30))


@pytest.mark.parametrize("why", [" DUE TO TIME LIMIT", "", " DUE to SIGNAL Terminated"])
@pytest.mark.parametrize(
    "memory", ["2026-03-01 05:59:59,000 [rank3] torch.OutOfMemoryError: CUDA out of memory.\n", ""]
)
def test_a_run_that_goes_on_to_write_behind_its_end_is_no_other_run(why: str, memory: str, tmp_path: Path) -> None:
    end = STOP.replace(" DUE TO {why}", why).format(of="JOB 77", at="06:00:00")
    case = case_of(tmp_path, {"slurm-77.out": STEPPED + memory + end + SAVING})
    assert (case.verdict.cause, case.collected.outlived) == ("resources" if memory else "stopped", ())


def test_what_ranks_say_as_their_run_is_ended_is_nothing_of_the_next(tmp_path: Path) -> None:
    told = "W0301 06:00:03.000000 9 torch/distributed/elastic/agent/server/api.py:739] Received 15 death signal\n"
    gone = "2026-03-01 08:10:03,100 [rank1]: Connection reset by peer\n"
    case = case_of(tmp_path, {"slurm-77.out": FIRST_RUN + told + SECOND_RUN + gone})
    assert (case.verdict.cause, [event.sign for event in case.collected.events]) == ("unknown", ["peer_gone"])


@pytest.mark.parametrize("hour", ["06", "10"])
@pytest.mark.parametrize("told", ["lm loss: 2.1", "[rank3] OSError: [Errno 28] No space left on device"])
def test_a_stop_is_where_its_line_stands_if_slurms_clock_is_of_another_zone(
    told: str, hour: str, tmp_path: Path
) -> None:
    steps = "".join(f"2026-03-01 07:59:{step}0,000 iteration {step}/90000 | lm loss: 2.1\n" for step in range(6))
    limit = "".join(STOP.format(of=of, why="TIME LIMIT", at=f"{hour}:00:00") for of in ("STEP 77.0", "JOB 77"))
    case = case_of(tmp_path, {"slurm-77.out": f"{steps}{limit}2026-03-01 08:00:01,000 {told}\n"})
    assert case.verdict.why == "its time limit was over"


def test_a_traceback_without_a_time_in_the_next_run_is_of_that_run(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"slurm-77.out": f"{FIRST_RUN}{SECOND_RUN}ValueError: shard 7\n", **FAILED})
    assert case.verdict.cause == "code"


def test_a_job_that_was_stopped_again_was(tmp_path: Path) -> None:
    last = STOP.format(of="JOB 77", why="TIME LIMIT", at="08:10:30")
    files = {"slurm-77.out": FIRST_RUN + RUNS_ON + last, "sacct.txt": SACCT.format(state="TIMEOUT")}
    assert case_of(tmp_path, files).verdict.why == "its time limit was over"


def test_a_failure_long_before_a_limit_is_before_it_wherever_its_line_stands(tmp_path: Path) -> None:
    memory = "2026-03-01 07:40:30,000 [rank3] torch.OutOfMemoryError: CUDA out of memory.\n"
    limit = STOP.format(of="JOB 77", why="TIME LIMIT", at="08:10:30")
    case = case_of(tmp_path, {"slurm-77.out": limit + memory, "sacct.txt": SACCT.format(state="TIMEOUT")})
    assert case.verdict.cause == "resources"


def test_a_gpu_that_broke_seconds_before_a_limit_is_to_be_drained(tmp_path: Path) -> None:
    own = CUDA_OF_3.replace("08:00:02", "08:10:28")
    log = {"gpu003-dmesg.txt": XID_79.format(time="08:10:26")}
    case = case_of(tmp_path, {"rank_3.log": RUNS_ON + own, "sacct.txt": SACCT.format(state="TIMEOUT"), **log})
    assert (case.verdict.standing, case.verdict.nodes) == ("established", ("gpu003",))


def test_what_a_node_says_seconds_before_a_limit_is_said_against_the_limit(tmp_path: Path) -> None:
    log = {"gpu003-dmesg.txt": XID_79.format(time="08:10:26")}
    case = case_of(tmp_path, {"rank_0.log": RUNS_ON, "sacct.txt": SACCT.format(state="TIMEOUT"), **log})
    assert (case.verdict.cause, case.verdict.against) == ("stopped", ("gpu003: Xid 79, GPU has fallen off the bus",))


@pytest.mark.parametrize("state", ["TIMEOUT", "CANCELLED by 1000"])
def test_a_job_may_have_hung_since_a_gpu_of_it_broke_long_before_its_end(state: str, tmp_path: Path) -> None:
    broken = {"gpu003-dmesg.txt": XID_79.format(time="08:00:26")}
    record = {"sacct.txt": SACCT.format(state=state)}
    case = case_of(tmp_path / "silent", {**broken, **record})
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == ("unknown", (), ("gpu003",))
    assert "gpu003: Xid 79, GPU has fallen off the bus; the job may have hung since" in case.verdict.why
    went_on = case_of(tmp_path / "went on", {**broken, **record, "rank_0.log": RUNS_ON})
    assert (went_on.verdict.cause, went_on.advice.nodes["gpu003"]) == ("stopped", "test")
