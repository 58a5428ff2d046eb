"""Incomplete exceptions: the log ends before their name, or no sign knows it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.case.files import SACCT, STEPS, WATCHDOG_OF_1, case_of
from tests.training_run.recorded import dump
from tests.untrusted.programs import bounded

pytestmark = pytest.mark.any_user

HEADER = "Traceback (most recent call last):\n"
FRAME = '  File "train.py", line 8, in <module>\n    step(batch)\n'
EXITED = "srun: error: gpu002: task 1: Exited with exit code 1\n"
TERMINATE = "terminate called after throwing an instance of "
LOST = "the log ends before the name of a Python exception"


def labelled(text: str, rank: int = 1) -> str:
    return "".join(f"{rank}: {line}\n" for line in text.splitlines())


def conclusion_of(folder: Path, text: str, state: str = "FAILED") -> tuple[str, int | None, str]:
    verdict = case_of(folder, {"job-77.out": text, "sacct.txt": SACCT.format(state=state)}).verdict
    return verdict.cause, verdict.rank, verdict.why


@pytest.mark.parametrize(
    "left",
    [
        HEADER,
        HEADER + FRAME,
        HEADER + '  File "tra',
        HEADER + FRAME + "KeyErr",
        HEADER + FRAME + "    size: int = 3",
        "Tracebac",
        "╭──────────── Traceback (most recent call last) ────────────╮\n│ /job/train.py:8 in <module>          │",
    ],
    ids=["header", "frames", "half a frame", "half a name", "a line of code", "half a header", "of rich"],
)
def test_an_exception_that_is_cut_off_is_said_with_its_rank(left: str, tmp_path: Path) -> None:
    cause, rank, why = conclusion_of(tmp_path, labelled(left) + EXITED)
    assert (cause, rank) == ("unknown", 1)
    assert why.startswith(LOST)
    assert "--error" in why


def test_srun_tells_the_node_of_what_is_cut_off(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"job-77.out": labelled(HEADER) + EXITED})
    assert case.collected.events[0].node == "gpu002"


def test_lines_without_a_rank_are_cut_off_too(tmp_path: Path) -> None:
    assert conclusion_of(tmp_path, HEADER + EXITED)[2].startswith(LOST)


@pytest.mark.parametrize(
    ("kind", "cause", "message"),
    [
        ("'std::runtime_error'\n", "unknown", "the log has no message of a C++ exception"),
        ("'c10::Er", "unknown", "the log has no message of a C++ exception"),
        ("'c10::DistBackendError'\n", "unknown", "all that was read is the end of others"),
        ("'std::bad_alloc'\n", "resources", "the host gave no more memory"),
    ],
)
def test_what_a_cpp_exception_threw_is_said_where_its_message_is_lost(
    kind: str, cause: str, message: str, tmp_path: Path
) -> None:
    named, _, why = conclusion_of(tmp_path, labelled(TERMINATE + kind) + EXITED)
    assert named == cause
    assert why.startswith(message)


def test_a_cpp_exception_with_its_message_is_not_cut_off(tmp_path: Path) -> None:
    text = TERMINATE + "'c10::Error'\n  what():  CUDA error: device-side assert triggered\n"
    assert conclusion_of(tmp_path, labelled(text))[0] == "code"


def test_a_cpp_exception_that_no_sign_knows_is_said_in_its_own_words(tmp_path: Path) -> None:
    text = TERMINATE + "'std::runtime_error'\n  what():  the shard has another version\n"
    assert conclusion_of(tmp_path, labelled(text))[2].endswith("says the cause: what():  the shard has another version")


def test_an_exception_that_is_told_is_not_cut_off(tmp_path: Path) -> None:
    text = labelled(HEADER + FRAME + "KeyError: 'image'\n") + EXITED
    case = case_of(tmp_path, {"job-77.out": text})
    assert case.verdict.cause == "code"
    assert [event.sign for event in case.collected.events] == ["exception"]


def test_a_warning_of_nccl_within_a_traceback_does_not_stand_for_its_exception(tmp_path: Path) -> None:
    text = f"{HEADER}{FRAME}n1:4:7 [1] enqueue.cc:422 NCCL WARN Error : no algorithm\nRuntimeError: NCCL Error 3\n"
    case = case_of(tmp_path, {"job-77.out": text})
    assert [event.words for event in case.collected.events if event.sign == "exception_unknown"] == [
        "RuntimeError: NCCL Error 3"
    ]


@pytest.mark.parametrize(
    "last",
    ["RuntimeError: shard 7 has another schema", "zarr.errors.GroupNotFoundError: group not found", "ShardError"],
)
def test_an_exception_that_no_sign_knows_is_said_in_its_own_words(last: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {"job-77.out": labelled(HEADER + FRAME + last + "\n") + EXITED})
    assert (case.verdict.cause, case.verdict.rank) == ("unknown", 1)
    assert case.verdict.why == f"an exception of which no sign says the cause: {last}"


@pytest.mark.parametrize("label", ["[default3]:", "[default3]: ", "[trainer0]:", "i.pretrain/0 ", "worker-1: "])
def test_an_exception_behind_the_label_of_a_launcher_is_told(label: str, tmp_path: Path) -> None:
    raised = HEADER + FRAME + "RuntimeError: shard 7 has another schema"
    text = "".join(f"{label}{line}\n" for line in raised.splitlines())
    assert "RuntimeError: shard 7 has another schema" in conclusion_of(tmp_path, text)[2]


def test_an_exception_in_a_report_of_torchrun_is_told(tmp_path: Path) -> None:
    block = "  traceback : Traceback (most recent call last):\n      step(batch)\n  KeyError: 'image'\n"
    assert conclusion_of(tmp_path, block)[0] == "code"


def test_what_the_job_went_on_after_is_not_cut_off(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"rank_1.log": HEADER + STEPS + WATCHDOG_OF_1})
    assert case.verdict.why == "ranks waited for others in vain; nothing says for what"


def test_a_hang_is_said_beside_an_exception_that_is_cut_off(tmp_path: Path) -> None:
    why = conclusion_of(tmp_path, WATCHDOG_OF_1 + "[rank1]: " + HEADER)[2]
    assert why.startswith("ranks waited for others in vain; nothing says for what; " + LOST)


def test_what_is_cut_off_when_a_job_is_cancelled_is_of_that(tmp_path: Path) -> None:
    assert conclusion_of(tmp_path, labelled(HEADER), "CANCELLED by 1000")[0] == "stopped"


def test_a_signal_says_more_than_what_is_cut_off(tmp_path: Path) -> None:
    killed = "srun: error: gpu003: task 2: Killed\n"
    cause, rank, why = conclusion_of(tmp_path, labelled(HEADER) + EXITED + killed)
    assert (cause, rank) == ("unknown", 2)
    assert "SIGKILL" in why


LONG = """
from clusterproof.plugins.case.output import OutputSource
from clusterproof.plugins.case.runs_of_log import read
from clusterproof.plugins.case.clocks import Clock
lines = [("a." * 1000, " a" * 1000, "Error" * 400)[number % 3] for number in range(1_000)]
read(["Traceback (most recent call last):", *lines], OutputSource("x"), Clock(2026))
"""


@pytest.mark.long
def test_long_lines_behind_a_traceback_are_read_in_time_that_grows_with_them() -> None:
    assert bounded(LONG, cpu_s=5).returncode == 0


@pytest.mark.long
def test_what_lies_between_the_ends_of_a_long_file_may_tell_the_exception(tmp_path: Path) -> None:
    long = labelled(HEADER) + "x" * 99 + "\n"
    middle = "".join(f"epoch {number} {'=' * 16_000}\n" for number in range(750))
    assert LOST not in conclusion_of(tmp_path, long + middle + EXITED)[2]


def test_an_exception_that_is_cut_off_establishes_no_fault_of_its_node(tmp_path: Path) -> None:
    xid = "2026-03-01T08:00:01,000000+00:00 NVRM: Xid (PCI:0000:c5:00): 79, pid=12, GPU has fallen off the bus.\n"
    files = {"job-77.out": STEPS + labelled(HEADER) + EXITED, "gpu002-dmesg.txt": xid}
    verdict = case_of(tmp_path, files).verdict
    assert (verdict.cause, verdict.standing) == ("hardware", "supported")


def test_the_first_to_end_is_not_said_to_be_unknown_where_srun_tells_it(tmp_path: Path) -> None:
    text = EXITED + "srun: error: gpu003: task 2: Terminated\n"
    assert (
        conclusion_of(tmp_path, text)[2] == "all that was read is the end of others; nothing says why the first ended"
    )


def test_a_dump_that_is_cut_off_does_not_make_its_rank_the_one_that_is_waited_for(tmp_path: Path) -> None:
    for rank in range(4):
        dumped = pickle.dumps(dump(rank, {"0": (12, 11)}), protocol=2)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(dumped[: len(dumped) // 2] if rank == 2 else dumped)
    collected = case_of(tmp_path, {"rank_1.log": WATCHDOG_OF_1}).collected
    assert [lead.rank for lead in collected.leads if lead.is_late] == []
    assert any(gap.startswith("nccl_trace_rank_2: ") for gap in collected.missing)
