"""Whom a case blames: a node only by its own evidence, and never for the end of other jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.case import CANDIDATE, ESTABLISHED, SUPPORTED
from clusterproof.plugins.case.report import rows
from clusterproof.plugins.catalog.causes import sign_of
from tests.case.files import BROKEN_GPU, CUDA_OF_3, SACCT, STEPS, WATCHDOG_OF_1, WITHOUT_LOG, XID_79, case_of


def test_a_node_whose_log_is_ahead_of_everything_and_whose_rank_agrees_is_established(tmp_path: Path) -> None:
    case = case_of(tmp_path, BROKEN_GPU)
    verdict = case.verdict
    assert (verdict.cause, verdict.nodes, verdict.rank, verdict.standing) == ("hardware", ("gpu003",), 3, ESTABLISHED)
    assert "device 0000:c5:00.0" in verdict.why
    unread = dict.fromkeys(("gpu001", "gpu002", "gpu004"), "not known")
    assert case.advice.nodes == {"gpu003": "drain", **unread}
    assert case.advice.exclude == ("gpu003",)
    assert case.advice.restart == "without"


def test_the_words_of_a_job_alone_never_blame_hardware(tmp_path: Path) -> None:
    case = case_of(tmp_path, WITHOUT_LOG)
    assert (case.verdict.cause, case.verdict.nodes) == ("unknown", ())
    assert case.advice.nodes["gpu003"] == "test"
    assert [command for command in case.advice.commands if "drain" in command] == []
    assert any("no kernel log of any node" in gap for gap in case.collected.missing)


def test_what_a_rank_prints_of_the_driver_is_no_evidence(tmp_path: Path) -> None:
    printed = "2026-03-01 08:00:01,000 " + XID_79.format(time="08:00:01").partition(" ")[2]
    case = case_of(tmp_path, {**WITHOUT_LOG, "rank_5.log": STEPS + printed})
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())


def test_a_node_without_a_rank_that_agrees_is_to_be_tested_before_it_is_drained(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": STEPS})
    assert (case.verdict.cause, case.verdict.standing) == ("hardware", SUPPORTED)
    assert case.advice.nodes["gpu003"] == "test"


NCCL_OF_9 = "gpu009:10:20 [1] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 1\n"
LINES_OF_9 = {
    "a failure": {"a.out": "srun: error: Node failure on gpu009\n"},
    "a rank's": {"a.out": NCCL_OF_9 + "gpu009:10:20 [1] NCCL WARN Cuda failure\n"},
    "a silent rank's": {"rank_1.log": WATCHDOG_OF_1, "rank_2.log": WATCHDOG_OF_1, "rank_3.log": NCCL_OF_9},
}


@pytest.mark.parametrize("name", LINES_OF_9)
def test_a_jobs_words_make_no_suspect_of_a_node_on_which_it_did_not_run(name: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, {**LINES_OF_9[name], "sacct.txt": SACCT.format(state="FAILED")})
    assert (case.verdict.suspects, case.advice.exclude) == ((), ())
    assert "gpu009" not in case.advice.nodes
    assert any(gap.endswith("on which it did not run: gpu009") for gap in case.collected.missing)


def test_an_exception_before_the_evidence_is_the_cause(tmp_path: Path) -> None:
    own = "2026-03-01 07:59:55,000 KeyError: 'image'\n"
    case = case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": STEPS, "rank_5.log": STEPS + own})
    assert (case.verdict.cause, case.verdict.rank, case.verdict.standing) == ("code", 5, CANDIDATE)
    assert any("Xid 79" in reason for reason in case.verdict.against)


def test_two_causes_that_clocks_cannot_tell_apart_are_unknown(tmp_path: Path) -> None:
    own = "2026-03-01 08:00:01,500 KeyError: 'image'\n"
    case = case_of(tmp_path, {**BROKEN_GPU, "rank_3.log": STEPS, "rank_5.log": STEPS + own})
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.suspects) == ("unknown", (), ("gpu003",))


def test_several_nodes_at_once_share_a_cause_and_none_is_blamed(tmp_path: Path) -> None:
    others = {f"gpu{number:03d}-dmesg.txt": XID_79.format(time="08:00:01") for number in (2, 4)}
    case = case_of(tmp_path, {**BROKEN_GPU, **others})
    assert case.verdict.nodes == ()
    assert set(case.verdict.suspects) == {"gpu002", "gpu003", "gpu004"}
    assert "what they share" in case.verdict.why


def test_a_rank_that_reports_the_end_of_its_peers_is_never_the_cause(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"rank_1.log": STEPS + WATCHDOG_OF_1, "sacct.txt": SACCT.format(state="FAILED")})
    assert (case.verdict.cause, case.verdict.first) == ("unknown", None)
    assert "waited for others in vain" in case.verdict.why


def test_an_error_after_the_timeouts_of_others_is_their_echo(tmp_path: Path) -> None:
    late = "2026-03-01 08:10:30,000 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB\n"
    case = case_of(tmp_path, {"rank_1.log": STEPS + WATCHDOG_OF_1, "rank_2.log": STEPS + late})
    assert case.verdict.cause == "unknown"
    assert "echo" in case.verdict.why


@pytest.mark.parametrize(
    "begun",
    [
        (
            "[W301 08:09:55.123000000 socket.cpp:697] [c10d] The client socket has failed to connect to [head]:29500 "
            "(errno: 111 - Connection refused)."
        ),
        (
            "[W301 08:09:55.123000000 socket.cpp:697] [c10d] The client socket has failed to connect to [head]:29500 "
            "(errno: 101 - Network is unreachable)."
        ),
        "W0301 08:09:55.000000 12 torch/distributed/run.py:766]   signals_to_handle     : SIGTERM,SIGINT",
        "2026-03-01 08:09:55,000 INFO installed handlers for SIGTERM, SIGUSR1",
        "2026-03-01 08:09:55,000 INFO Registered SIGTERM and SIGUSR1 for a checkpoint",
        "2026-03-01 08:09:55,000 INFO creating TCPStore on head:29500",
        (
            "2026-03-01 08:09:55,000 wandb: Network error (ConnectionResetError): Connection reset by peer, "
            "entering retry loop."
        ),
    ],
)
def test_an_exception_behind_what_jobs_say_as_they_begin_is_no_echo(begun: str, tmp_path: Path) -> None:
    said = f"{begun}\n2026-03-01 08:10:00,000 INFO: starting\n2026-03-01 08:10:20,000 [rank3]: KeyError: 'caption'\n"
    verdict = case_of(tmp_path, {"slurm-77.out": said, "sacct.txt": SACCT.format(state="FAILED")}).verdict
    assert (verdict.cause, verdict.rank) == ("code", 3)


@pytest.mark.parametrize(
    ("line", "sign"),
    [
        ("OSError: [Errno 5] Input/output error after retrying 3 times", "input_output"),
        ("OSError: [Errno 28] No space left on device; stopped retrying", "no_room"),
        ("error in the signal handler: torch.OutOfMemoryError: CUDA out of memory", "gpu_memory"),
        ("[rank3] SIGTERM handler called, saving a checkpoint", "told_to_end"),
    ],
)
def test_a_word_of_retries_or_handlers_hides_nothing_beside_it(line: str, sign: str) -> None:
    found = sign_of("output", line)
    assert found is not None
    assert found.name == sign


@pytest.mark.parametrize(
    "ended",
    [
        'Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut down too early)',
        "[W301 TCPStore.cpp:141] [c10d] recvValueWithTimeout failed on SocketImpl(fd=4): Connection was likely closed",
        "torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda//0",
    ],
)
def test_an_exception_behind_the_end_of_the_store_is_an_echo(ended: str, tmp_path: Path) -> None:
    said = f"2026-03-01 08:09:55,000 {ended}\n2026-03-01 08:10:20,000 [rank3]: KeyError: 'caption'\n"
    verdict = case_of(tmp_path, {"slurm-77.out": said, "sacct.txt": SACCT.format(state="FAILED")}).verdict
    assert (verdict.cause, "echo" in verdict.why) == ("unknown", True)


def test_what_is_no_known_sign_is_no_clean_bill(tmp_path: Path) -> None:
    case = case_of(tmp_path, {"rank_0.log": STEPS + CUDA_OF_3.splitlines()[0] + "\n"})
    assert case.verdict.cause == "unknown"
    assert "does not mean that all was well" in case.verdict.why


GLOO = "{rank}: RuntimeError: [./gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 150000ms for recv\n"


@pytest.mark.parametrize(("silent", "leads"), [((7,), [7]), ((0, 1, 7), [])], ids=["one", "several, cut off perhaps"])
def test_the_one_rank_of_a_labelled_file_that_does_not_wait_is_a_lead(
    silent: tuple[int, ...], leads: list[int], tmp_path: Path
) -> None:
    began = "".join(f"{rank}: libnuma: Warning\n" for rank in range(8))
    output = "".join(GLOO.format(rank=rank) for rank in range(8) if rank not in silent)
    case = case_of(tmp_path, {"job-77.out": began + output + "srun: error: gpu004: task 7: Terminated\n"})
    assert [lead.rank for lead in case.collected.leads if lead.is_late] == leads
    assert case.verdict.suspects == (("gpu004",) if leads else ())
    assert (case.verdict.cause, case.verdict.nodes) == ("unknown", ())


INIT_OF_3 = "gpu003:812:812 [1] NCCL INFO ncclCommInitRankConfig comm 0x55 rank 3 nranks 8 cudaDev 1 - Init START\n"
FAULT_OF_3 = "2026-03-01 08:00:02,100 [rank3]: torch.AcceleratorError: CUDA error: unspecified launch failure\n"
XID_43 = "2026-03-01T08:00:01,000000+00:00 NVRM: Xid (PCI:0000:c5:00): 43, pid={pid}, name=python3, channel 0x49\n"


@pytest.mark.parametrize(
    ("log", "cause", "nodes"),
    [
        (XID_43.format(pid=812), "code", ()),
        (XID_43.format(pid=813), "unknown", ()),
        (XID_43.format(pid=812) + XID_43.format(pid=812).replace(": 43,", ": 94,"), "unknown", ()),
        (XID_43.format(pid=812) + XID_79.format(time="08:00:01"), "hardware", ("gpu003",)),
    ],
    ids=["of the rank's process", "of another process", "and a memory error", "and the GPU fell off the bus"],
)
def test_an_xid_of_the_program_bears_out_what_its_rank_says(
    log: str, cause: str, nodes: tuple[str, ...], tmp_path: Path
) -> None:
    files = {
        "rank_3.log": STEPS + INIT_OF_3 + FAULT_OF_3,
        "gpu003-dmesg.txt": log,
        "sacct.txt": SACCT.format(state="FAILED"),
    }
    verdict = case_of(tmp_path, files).verdict
    assert (verdict.cause, verdict.nodes) == (cause, nodes)


def test_a_process_is_the_rank_that_its_largest_communicator_has(tmp_path: Path) -> None:
    smaller = INIT_OF_3.replace("rank 3 nranks 8", "rank 1 nranks 2")
    warns = "[2026-03-01 08:00:03] gpu003:812:900 [1] misc/strongstream.cc:402 NCCL WARN Cuda failure 'x'\n"
    case = case_of(
        tmp_path, {"job.out": smaller + INIT_OF_3 + smaller + warns, "sacct.txt": SACCT.format(state="FAILED")}
    )
    assert [(event.sign, event.rank) for event in case.collected.events] == [("nccl_cuda", 3)]


SILENT = (  # output where hardware may be the cause and nothing shows that the code is
    "AssertionError: gradient norm is nan",
    "ValueError: Weight checksum mismatch between ranks: rank 3",
    "AssertionError: checksum of gradients differs on rank 3",
    "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
    "AssertionError: Invalid device id",
    "NanCheck.cu:217: Assertion `!isnan(x[i])` failed.\nRuntimeError: CUDA error: device-side assert triggered",
    "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x9d in position 12: invalid start byte",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
)


@pytest.mark.parametrize("message", SILENT)
def test_what_hardware_may_have_done_blames_no_code(message: str, tmp_path: Path) -> None:
    raised = f'2026-03-01 08:00:00,000 ERROR\nTraceback (most recent call last):\n  File "t.py", line 1\n{message}\n'
    case = case_of(tmp_path, {"rank_3.log": STEPS + raised, "sacct.txt": SACCT.format(state="FAILED")})
    assert (case.verdict.cause, case.verdict.nodes, case.verdict.rank) == ("unknown", (), 3)
    assert case.verdict.first is not None
    assert case.verdict.first.row.proof  # type: ignore[union-attr]


LINK_DOWN = "2026-03-01T07:59:58,000000+00:00 igb 0000:03:00.0 eno2: igb: eno2 NIC Link is Down\n"
OF_PEER = "2026-03-01 08:00:01,100 [rank2] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0\n"


@pytest.mark.parametrize(
    ("own", "others", "cause"),
    [
        ("KeyError: 'image'", "", "code"),
        ("torch.OutOfMemoryError: CUDA out of memory.", "", "resources"),
        ("OSError: [Errno 116] Stale file handle: '/data'", "", "network"),
        ("KeyError: 'image'", OF_PEER, "network"),
    ],
)
def test_a_link_that_was_down_explains_no_exception_that_no_network_makes(
    own: str, others: str, cause: str, tmp_path: Path
) -> None:
    raised = f"2026-03-01 08:00:02,100 [rank3] {own}\n"
    files = {"rank_3.log": STEPS + raised, "rank_1.log": STEPS + WATCHDOG_OF_1, "gpu001-dmesg.txt": LINK_DOWN}
    case = case_of(tmp_path, {**files, "rank_2.log": STEPS + others, "sacct.txt": SACCT.format(state="FAILED")})
    assert case.verdict.cause == cause
    assert any(row.where.startswith("gpu001") for row in rows(case))


@pytest.mark.parametrize("is_above", [True, False])
def test_what_looks_like_hardware_above_an_exception_is_not_hidden_by_it(is_above: bool, tmp_path: Path) -> None:
    lines = ["RuntimeError: CUDA error: uncorrectable ECC error encountered\n", "ValueError: bad\n"]
    output = "".join(lines if is_above else reversed(lines))
    verdict = case_of(tmp_path, {"slurm-77.out": STEPS + output}).verdict
    assert verdict.cause == ("unknown" if is_above else "code")
