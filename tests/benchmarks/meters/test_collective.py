"""The collective meters: every text format that nccl-tests and nccom-test print, and how it is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.benchmarks.meters import MeterSettings, Output, nccl_tests, nccom_test
from clusterproof.plugins.benchmarks.meters.selection import METERS
from clusterproof.plugins.evidence.pairs import Failure, Reading
from tests.builders.samples import sample
from tests.testbed.outputs import NCCL_ROWS, nccl_log, nccom_log

GIB = 2**30


def nccl(text: str, end: int | None = 0, **settings: Any) -> Reading:
    return nccl_tests.read(MeterSettings(**settings), (Output(text, end),))


def nccom(text: str, end: int | None = 0) -> Reading:
    return nccom_test.read(MeterSettings(), (Output(text, end),))


@pytest.mark.parametrize(
    ("file", "end", "message"),
    [
        ("azure-bad-minbytes", 255, "it ended with 255; invalid size specified for 'minbytes'"),
        ("azure-mpi-bad-gpu-count", 5, "it ended with 5; Invalid number of GPUs: 297 requested but only 8 were found."),
        ("azure-mpi-ppr-rejected", 1, "it ended with 1; Your job has requested more processes than the ppr for"),
        (
            "gcm-not-enough-slots",
            1,
            "it ended with 1; There are not enough slots available in the system to satisfy the 16",
        ),
        ("gke-b200-b", 0, "no row of its table has a bandwidth"),
        ("dcgm-mock-fail-oob", 3, "wrong results: 2 values out of bounds"),
        ("awsome-p5-srun-prefixed", None, "it did not end in its time"),
        ("awsome-p5-srun-prefixed", -9, "signal 9 ended it"),
    ],
)
def test_a_run_that_failed_has_no_bandwidth_and_one_line_that_says_why(
    file: str, end: int | None, message: str
) -> None:
    read = nccl(sample(f"nccl-tests/{file}.txt").text, end)
    assert read.busbw_gb_per_s is None
    assert read.problem.startswith(message)
    assert "\n" not in read.problem


def test_the_bandwidth_is_of_the_largest_size_and_of_the_slower_half() -> None:
    read = nccl(nccl_log())
    assert (read.busbw_gb_per_s, read.algbw_gb_per_s, read.time_us, read.size_bytes) == (473.12, 252.33, 4255.4, GIB)
    assert (read.ranks, read.hosts, read.is_correct) == (16, ("gpu001", "gpu002"), True)


ROW = "  1073741824  268435456  float  sum  -1  4253.00  252.47  473.38  0  4255.40  252.33  473.12  0\n"
EFA_DIRECT = "NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)"
INFO = "gpu001:700:700 [0] NCCL INFO Channel 00/1 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0\n"


@pytest.mark.parametrize("tag", ["", "[1,0]<stdout>:", "0: "])
@pytest.mark.parametrize("times", [1, 3])
def test_a_row_that_nccls_own_lines_cut_in_two_is_put_together(tag: str, times: int) -> None:
    head, tail = ROW[: ROW.index("  4253.00")], ROW[ROW.index("  4253.00") :]
    log = nccl_log(rows=head + INFO * times + tail)
    read = nccl("".join(f"{tag}{line}\n" for line in log.splitlines()))
    assert read.busbw_gb_per_s == 473.12


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (f"{EFA_DIRECT}\nNCCL INFO Using network AWS Libfabric", "efa, 32 devices"),
        ("NCCL INFO Using network Socket", "Socket"),
        ("NCCL INFO NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)", "tcp;ofi_rxm"),
        ("NCCL INFO Using network IB", "IB"),
        (
            "NCCL INFO NET/OFI Selected provider is efa (found 16 nics)\nNCCL INFO Using network Socket",
            "efa, 16 devices and Socket",
        ),
        ("", ""),
    ],
)
def test_the_network_is_what_nccls_own_lines_name(network: str, expected: str) -> None:
    assert nccl(nccl_log(network=network)).network == expected


def test_where_nccl_names_no_network_the_counters_do_and_only_where_they_account_for_the_bytes() -> None:
    text = nccl_log(network="")
    sent = {f"efa:rdmap{device}s0": GIB for device in range(16)} | {"net:eth0": 10_000}
    read = nccl_tests.read(MeterSettings(), (Output(text, 0, sent),))
    assert read.network == "efa, 16 devices"
    assert nccl_tests.read(MeterSettings(), (Output(text, 0, {"net:eth0": GIB}),)).network == ""


@pytest.mark.parametrize(
    ("summary", "rows", "count"),
    [
        ("# Out of bounds values : 2 FAILED\n", NCCL_ROWS, 2),
        ("# Out of bounds values : 0 OK\n", NCCL_ROWS.replace("45.21      0", "45.21      7"), 7),
    ],
)
def test_wrong_values_are_no_bandwidth(summary: str, rows: str, count: int) -> None:
    read = nccl(nccl_log(rows=rows, summary=summary))
    assert (read.busbw_gb_per_s, read.is_correct) == (None, False)
    assert read.problem == f"wrong results: {count} values out of bounds"


@pytest.mark.parametrize("cell", ["0.00", "-473.38", "nan", "inf", "999999999999", "N/A", "1e308"])
def test_a_bandwidth_that_cannot_be_is_none(cell: str) -> None:
    rows = ROW.replace("473.38", cell).replace("473.12", cell)
    read = nccl(nccl_log(rows=rows))
    assert read.busbw_gb_per_s is None
    assert read.problem


def test_another_size_than_the_one_asked_for_is_a_problem() -> None:
    read = nccl(nccl_log(), size_bytes=8 * GIB)
    assert (read.busbw_gb_per_s, read.problem) == (None, "its largest size is 1073741824 bytes; expected 8589934592")


NO_PMI_OF_OPEN_MPI_4 = """[gpu002:00064] OPAL ERROR: Unreachable in file ext3x_client.c at line 112
The application appears to have been direct launched using "srun",
but OMPI was not built with SLURM's PMI support and therefore cannot
execute.
"""


@pytest.mark.parametrize(
    ("text", "end", "problem", "is_apart"),
    [
        (
            f"# MPI library: \n{nccl_log()}0: # MPI library: \n{nccl_log()}",
            0,
            "every rank ran alone: this nccl-tests is built without MPI; build it with MPI=1",
            False,
        ),
        (
            f"0: # MPI library: libmpi.so.40\n{nccl_log()}{nccl_log()}",
            0,
            "the ranks did not find each other: each ran alone, though nccl-tests has MPI (libmpi.so.40)",
            True,
        ),
        (
            nccl_log() + nccl_log(),
            1,
            "the ranks did not find each other: each ran alone, though nccl-tests may have MPI",
            True,
        ),
        (
            f"# MPI library: libmpi.so.40\n{NO_PMI_OF_OPEN_MPI_4}",
            1,
            "the ranks did not find each other: its MPI saw no other rank",
            True,
        ),
    ],
    ids=["no MPI", "no PMI", "a script", "Open MPI 4"],
)
def test_ranks_that_each_ran_alone_are_reported_with_what_is_missing(
    text: str, end: int, problem: str, is_apart: bool
) -> None:
    read = nccl(text, end)
    assert (read.busbw_gb_per_s, read.problem) == (None, problem)
    assert (read.failure is Failure.APART) == is_apart


def test_a_library_that_is_not_found_is_reported_with_how_to_say_where_it_is() -> None:
    line = "/opt/nccl-tests/build/all_reduce_perf: error while loading shared libraries: libmpi.so.40: cannot open"
    noise = "hwloc/linux: failed to find sysfs cpu topology directory, aborting linux discovery.\n"
    read = nccl(f"{noise}{line} shared object file: No such file or directory\n", 127)
    assert read.problem == (
        f"it ended with 127; {line} shared object file: No such file or directory; expected its folder in "
        "LD_LIBRARY_PATH: by a module that is loaded first, or --meter-env"
    )


@pytest.mark.parametrize(
    ("line", "culprit"),
    [
        (
            "mpirun noticed that process rank 8 with PID 0 on node ip-10-0-0-7 exited on signal 9 (Killed).",
            "ip-10-0-0-7",
        ),
        ("  Remote daemon: [[31117,0],1] on node gpu002", "gpu002"),
        ("srun: error: Node failure on gpu002", "gpu002"),
        ("srun: error: gpu002: tasks 8-15: Killed", "gpu002"),
        ("srun: error: gpu001: task 0: Killed\nsrun: error: gpu002: task 8: Killed", ""),
        ("node gpu002 failed", "gpu002"),
        ("ssh: connect to host gpu002 port 22: No route to host", "gpu002"),
        ("gpu002:70:70 [0] include/alloc.h:102 NCCL WARN Cuda failure 'uncorrectable ECC error encountered'", "gpu002"),
        ("gpu001:70:70 [0] misc/socket.cc:50 NCCL WARN Net : connection closed by remote peer gpu002<4242>", ""),
        ("gpu002: Test CUDA failure common.cu:964 'out of memory'", "gpu002"),
        ("clusterproof: gpu001: all_reduce_perf is not installed: looked on PATH; install it", "gpu001"),
        ("clusterproof: gpu001: no such program\nclusterproof: gpu002: no such program", ""),
        ("nothing that names a node", ""),
    ],
)
def test_a_node_is_at_fault_only_where_the_text_names_that_one(line: str, culprit: str) -> None:
    for read in (nccl(f"{line}\n", 1), nccom(f"{line}\n", 1)):
        assert read.culprit == culprit
        assert read.problem


def test_nccom_test_is_read_in_10_9_bytes_and_is_checked_where_its_command_says_so() -> None:
    assert nccom(nccom_log()).is_correct is None
    read = nccom("nccom-test -r 64 -N 2 --check allr\n" + nccom_log())
    assert (read.busbw_gb_per_s, read.size_bytes, read.is_correct, read.ranks) == (71.33, 8388608, True, 64)


def test_a_mismatch_of_nccom_test_is_no_bandwidth() -> None:
    read = nccom(nccom_log() + "rank 3: output mismatch at element 5\n")
    assert (read.busbw_gb_per_s, read.is_correct) == (None, False)


HOSTILE = [
    "",
    "\x00\x1b[2J\x07",
    "�" * 1000,
    nccl_log()[:900],
    nccl_log(rows=ROW.replace("1073741824", "9" * 400)),
    nccl_log(rows=ROW * 5000),
    "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n" + "9 " * 10_000,
    "NCCL INFO " * 20_000,
    "[1,0]<stdout>:" * 10_000,
    ("1 a:1:1 [0] NCCL INFO x\n") * 10_000,
    nccom_log().replace("36.30", "nan").replace("71.33", "inf"),
    nccom_log().replace("231.10", "0"),
]


@pytest.mark.long
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", sorted(METERS))
@pytest.mark.parametrize("end", [None, 0, 1, -11])
def test_hostile_output_raises_nothing_and_says_one_printable_line(name: str, text: str, end: int | None) -> None:
    read = METERS[name].read(MeterSettings(), (Output(text, end), Output(text, end)))
    assert (read.busbw_gb_per_s is None) == bool(read.problem)
    assert read.problem.isprintable()
    assert len(read.problem) <= 300


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(METERS))
@given(text=st.text(max_size=300), end=st.sampled_from([None, 0, 1]))
def test_any_text_is_read_without_an_exception(name: str, text: str, end: int | None) -> None:
    read = METERS[name].read(MeterSettings(), (Output(text, end),))
    assert read.busbw_gb_per_s is None
    assert read.problem.isprintable()
    assert read.problem


@pytest.mark.parametrize("name", sorted(METERS))
def test_no_output_at_all_is_a_problem(name: str) -> None:
    assert METERS[name].read(MeterSettings(), ()).problem
