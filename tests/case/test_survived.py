"""Messages that programs print and survive are no cause, and hide none."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.case.report import rows
from tests.case.files import BROKEN_GPU, CUDA_OF_3, SACCT, STEPS, XID_79, case_of

GOES_ON = "2026-03-01 07:59:{second:02d},000 INFO: trainer: loss 2.31\n"
WARNED = (
    "WARNING could not read sample 17, skipped: KeyError: 'caption'",
    "[WARNING] loader.py:88 - retry of shard 17: FileNotFoundError: [Errno 2] No such file or directory: '/tmp/s.mds'",
    "| WARNING | fairseq.trainer | ran out of memory with exception: CUDA out of memory. Tried to allocate 2 GiB",
    "train.py:31: UserWarning: the mirror answered not: [Errno -3] Temporary failure in name resolution",
    "level=warning msg=KeyError: 'caption'",
    "rank3[812][Thread-5]: WARNING: streaming: retry: OSError: [Errno 5] Input/output error: '/data/s17.mds'",
)


@pytest.mark.parametrize("words", WARNED)
@pytest.mark.parametrize("at", ["07:44:50", "07:58:30", "07:59:50"])
def test_what_was_logged_as_a_warning_does_not_hide_the_gpu_that_broke(words: str, at: str, tmp_path: Path) -> None:
    own = f"2026-03-01 {at},000 {words}\n{GOES_ON.format(second=55)}{CUDA_OF_3}"
    case = case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": own})
    assert (case.verdict.cause, case.verdict.standing, case.verdict.nodes) == ("hardware", "established", ("gpu003",))


def test_a_warning_of_glog_is_one(tmp_path: Path) -> None:
    own = f"W0301 07:59:50.000000 812 loader.cc:7] KeyError: 'caption'\n{GOES_ON.format(second=55)}{CUDA_OF_3}"
    assert case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": own}).verdict.standing == "established"


@pytest.mark.parametrize("words", WARNED)
def test_a_warning_alone_is_no_cause_and_is_said(words: str, tmp_path: Path) -> None:
    line = f"2026-03-01 08:10:29,000 {words}\n"
    case = case_of(tmp_path, {"rank_3.log": line, "sacct.txt": SACCT.format(state="FAILED")})
    assert case.verdict.cause == "unknown"
    assert words[:40] in case.verdict.why


def test_the_warnings_of_nccl_are_its_errors(tmp_path: Path) -> None:
    line = (
        "gpu003:10:20 [1] init.cc:960 NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device c5000\n"
    )
    assert case_of(tmp_path, {"rank_1.log": line}).verdict.cause == "code"


def test_a_warning_does_not_hide_what_the_same_rank_says_of_its_end(tmp_path: Path) -> None:
    own = f"2026-03-01 08:00:00,000 {WARNED[0]}\n2026-03-01 08:10:29,000 torch.OutOfMemoryError: CUDA out of memory.\n"
    assert case_of(tmp_path, {"rank_3.log": own}).verdict.cause == "resources"


def test_a_warning_before_a_limit_is_no_failure(tmp_path: Path) -> None:
    own = f"2026-03-01 07:50:00,000 {WARNED[0]}\n2026-03-01 08:10:20,000 INFO: trainer: loss 2.31\n"
    case = case_of(tmp_path, {"rank_3.log": own, "sacct.txt": SACCT.format(state="TIMEOUT")})
    assert case.verdict.cause == "stopped"


SURVIVED = "2026-03-01 07:58:{second},000 Traceback (most recent call last):\nKeyError: 'caption'\n"


@pytest.mark.parametrize(
    ("rank", "said"), [(0, ("unknown", "unknown", ())), (3, ("hardware", "supported", ("gpu003",)))]
)
def test_an_exception_of_before_hides_no_broken_gpu_that_a_rank_bears_out(
    rank: int, said: tuple[str, str, tuple[str, ...]], tmp_path: Path
) -> None:
    own = {**BROKEN_GPU, "rank_3.log": CUDA_OF_3}
    own[f"rank_{rank}.log"] = SURVIVED.format(second="10") + GOES_ON.format(second=50) + own.get(f"rank_{rank}.log", "")
    case = case_of(tmp_path, own)
    assert (case.verdict.cause, case.verdict.standing, case.verdict.nodes) == said
    assert "Xid 79" in case.verdict.why
    assert case.advice.nodes["gpu003"] == "test"
    assert any("Xid 79" in row.words for row in rows(case))
    assert not any("another time" in gap for gap in case.collected.missing)


def test_evidence_before_the_end_of_the_job_is_of_its_time(tmp_path: Path) -> None:
    own = {"rank_3.log": SURVIVED.format(second="10") + "2026-03-01 08:10:00,000 INFO: loss 2.31\n"}
    case = case_of(tmp_path, {**own, "gpu003-dmesg.txt": XID_79.format(time="08:05:00")})
    assert not any("another time" in gap for gap in case.collected.missing)
    assert any("Xid 79" in row.words for row in rows(case))


IGNORED = (
    "Exception ignored in: <function Loader.__del__ at 0x7f62>\nTraceback (most recent call last):\n"
    '  File "/opt/x.py", line 14, in __del__\n    self._shutdown()\n    ~~~~~~~~~~~~~~^^\n{exception}\n'
)
TRACKER = (
    'Traceback (most recent call last):\n  File "/usr/lib/python3.10/multiprocessing/resource_tracker.py", line 201, '
    "in main\n    cache[rtype].remove(name)\nKeyError: '/psm_9f1a'\n"
)
CHILD = (
    'Traceback (most recent call last):\n  File "/usr/lib/python3.10/multiprocessing/spawn.py", line 115, in _main\n'
    "    self = reduction.pickle.load(from_parent)\n{exception}\n"
)
CHAINED = IGNORED.format(exception="KeyError: 7") + (
    "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n"
    '  File "/opt/x.py", line 15, in __del__\n    raise ValueError(7)\nValueError: 7\n'
)
AS_RANK_3 = "".join(f"[rank3]: {line}\n" for line in IGNORED.format(exception="KeyError: 7").splitlines())
OF_RAY = "".join(f"(Worker pid=7) {line}\n" for line in IGNORED.format(exception="KeyError: 7").splitlines())
STAMPED = "".join(f"2026-03-01 08:00:00,000 {line}\n" for line in IGNORED.format(exception="KeyError: 7").splitlines())
TWO_AT_ONCE = "".join(f"{line}\n{line}\n" for line in IGNORED.format(exception="AssertionError: x").splitlines())
BLOCKS = {
    "of a destructor": IGNORED.format(exception="AssertionError: can only test a child"),
    "behind a bar": "2.16it/s]" + IGNORED.format(exception="ImportError: sys.meta_path"),
    "of a thread": IGNORED.format(exception="KeyError: 7").replace("ignored in:", "ignored in thread started by"),
    "of a newer Python": IGNORED.format(exception="KeyError: 7").replace("in:", "while calling deallocator"),
    "chained": CHAINED,
    "of a rank": AS_RANK_3,
    "of Ray": OF_RAY,
    "with times": STAMPED,
    "of two processes": TWO_AT_ONCE,
    "without lines of a program": IGNORED.replace("    self._shutdown()\n    ~~~~~~~~~~~~~~^^\n", "").format(
        exception="K: 7"
    ),
    "of the resource tracker": TRACKER,
    "of a child whose parent ended": CHILD.format(exception="_pickle.UnpicklingError: pickle data was truncated"),
    "of a logger": '--- Logging error ---\nTraceback (most recent call last):\n  File "/l.py", line 1, in emit\n'
    "    msg = self.format(record)\nTypeError: not all arguments converted during string formatting\n",
    "without a provider": "libibverbs: Warning: couldn't load driver 'x': libx.so: No such file or directory\n",
    "of sudo": "sudo: unable to resolve host ip-10-0-3-7: Name or service not known\n",
    "of the linker": "ERROR: ld.so: object '/x.so' from LD_PRELOAD cannot be preloaded: No such file or directory\n",
    "of protobuf": "AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'\n",
}


@pytest.mark.parametrize(
    "line",
    [
        "cat: /etc/hostid: No such file or directory",
        "ls: cannot access '/opt/slurm/etc/extra': No such file or directory",
        "rm: cannot remove '/tmp/cache': No such file or directory",
        "/bin/sh: 1: ninja: not found",
        "sh: line 1: nvidia-smi: command not found",
        "/etc/profile.d/modules.sh: line 7: /usr/share/modules/init/bash: No such file or directory",
    ],
)
def test_a_small_command_of_a_script_that_failed_is_said_and_hides_nothing(line: str, tmp_path: Path) -> None:
    killed = case_of(tmp_path / "killed", {"slurm-77.out": f"{line}\nKilled\n"}).verdict
    assert (killed.cause, killed.why.partition(",")[0]) == ("unknown", "a process got SIGKILL")
    alone = case_of(tmp_path / "alone", {"slurm-77.out": f"{line}\n"}).verdict
    assert (alone.cause, alone.why.rpartition(line)[1:]) == ("unknown", (line, ""))


def test_a_tensorflow_that_is_kept_from_gpus_lost_none(tmp_path: Path) -> None:
    kept = "2026-03-01 08:00:00.1: E cuda_driver.cc:266] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable "
    line = f"{kept}device is detected\n[rank3]: KeyError: 'caption'\n"
    assert case_of(tmp_path, {"rank_3.log": line}).verdict.cause == "code"


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_what_a_process_survives_is_no_sign(block: str, tmp_path: Path) -> None:
    assert case_of(tmp_path / "alone", {"slurm-77.out": block}).collected.events == ()
    files = {**BROKEN_GPU, "rank_3.log": block + CUDA_OF_3}
    assert case_of(tmp_path / "gpu", files).verdict.standing == "established"
    killed = case_of(tmp_path / "killed", {"slurm-77.out": f"{block}Killed\n"}).verdict
    assert (killed.cause, killed.why.partition(",")[0]) == ("unknown", "a process got SIGKILL")


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_an_exception_behind_such_a_block_is_read(block: str, tmp_path: Path) -> None:
    own = (
        'Traceback (most recent call last):\n  File "train.py", line 7, in main\n    run()\nTypeError: run() takes 1\n'
    )
    assert case_of(tmp_path / "traceback", {"slurm-77.out": block + own}).verdict.cause == "code"
    assert case_of(tmp_path / "line", {"slurm-77.out": f"{block}x\nTypeError: run() takes 1\n"}).verdict.cause == "code"


def test_a_child_that_cannot_read_its_own_program_is_code(tmp_path: Path) -> None:
    own = CHILD.format(exception="AttributeError: Can't get attribute 'Shards' on <module '__main__'>")
    assert case_of(tmp_path, {"slurm-77.out": own}).verdict.cause == "code"


@pytest.mark.parametrize(
    ("error", "standing"),
    [
        ("OSError: [Errno 24] Too many open files", "supported"),
        ("RuntimeError: Call to posix_fallocate failed", "supported"),
        ("RuntimeError: CUDA error: out of memory", "established"),
        ("RuntimeError: CUDA error: unknown error", "established"),
    ],
)
def test_a_limit_that_a_rank_reached_does_not_bear_out_a_broken_gpu(error: str, standing: str, tmp_path: Path) -> None:
    late = CUDA_OF_3.replace("08:00:02,100", "08:01:30,100").replace(
        "RuntimeError: CUDA error: unspecified launch failure", error
    )
    case = case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": STEPS + late})
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.standing) == ("hardware", ("gpu003",), standing)


IB_ERROR = (
    "gpu00{node}:1{node}:20 [1] NCCL INFO comm 0x55 rank {node} nranks 8 cudaDev 1\n"
    "2026-03-01 {at},000 gpu00{node}:1{node}:20 [1] NCCL WARN NET/IB : Got completion from peer 10.0.0.3<41> with "
    "error 12, opcode 0, len 0, vendor err 129\n"
)
OF_RANK_3 = CUDA_OF_3.splitlines(keepends=True)[0] + "2026-03-01 08:00:00,000 [rank3] {said}\n"
STUCK = (
    "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
)


@pytest.mark.parametrize(
    ("said", "at", "why", "suspects"),
    [
        ("python: Killed", "08:00:10", "a process got SIGKILL", ()),
        ("python: Segmentation fault", "08:00:10", "a process crashed", ()),
        (STUCK, "08:00:10", "this process hung", ("gpu003",)),
        ("python: Killed", "08:00:01", "a process got SIGKILL", ("gpu001", "gpu002")),  # clocks may differ
        ("python: Killed", "07:59:40", "NCCL met an error of the network", ("gpu001", "gpu002")),
        ("loss is nan", "08:00:10", "the loss was no number", ("gpu001", "gpu002")),  # which ends no process
        ("python: Killed", "08:20:00", "a process got SIGKILL", ("gpu001", "gpu002")),
    ],
)
def test_nodes_whose_ranks_lost_a_peer_that_had_ended_are_no_suspects(
    said: str, at: str, why: str, suspects: tuple[str, ...], tmp_path: Path
) -> None:
    files = {f"rank_{node}.log": IB_ERROR.format(node=node, at=at) for node in (1, 2)}
    files |= {"rank_3.log": OF_RANK_3.format(said=said), "sacct.txt": SACCT.format(state="FAILED")}
    verdict = case_of(tmp_path, files).verdict
    assert (verdict.cause, verdict.why[: len(why)], verdict.suspects) == ("unknown", why, suspects)


def test_a_node_that_slurm_lost_is_the_suspect_and_not_its_peers(tmp_path: Path) -> None:
    files = {f"rank_{node}.log": IB_ERROR.format(node=node, at="08:05:00") for node in (1, 2)}
    lost = {"slurm-77.out": "srun: error: Node failure on gpu003\n", "sacct.txt": SACCT.format(state="NODE_FAIL")}
    verdict = case_of(tmp_path, {**files, **lost}).verdict
    assert (verdict.cause, verdict.suspects, verdict.why.partition(":")[0]) == (
        "unknown",
        ("gpu003",),
        "Slurm lost a node",
    )
