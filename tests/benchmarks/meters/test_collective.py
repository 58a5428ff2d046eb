"""The meters of collectives: every text form that nccl-tests and nccom-test print, and what is read of it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.plugins.benchmarks.meters import nccl_tests, nccom_test
from clusterproof.plugins.benchmarks.meters.choose import METERS, meter_for
from clusterproof.plugins.benchmarks.meters.meter import MeterSettings, Output
from clusterproof.plugins.benchmarks.meters.reading import Reading
from tests.builders.samples import FOLDER, of_topic, sample
from tests.testbed import compiled
from tests.testbed.needs import needs_openmpi
from tests.testbed.outputs import NCCL_ROWS, nccl_log, nccom_log

GIB = 2**30


def nccl(text: str, end: int | None = 0, **settings: Any) -> Reading:
    return nccl_tests.read(MeterSettings(**settings), (Output(text, end),))


def nccom(text: str, end: int | None = 0) -> Reading:
    return nccom_test.read(MeterSettings(), (Output(text, end),))


# Sample: busbw of the largest size in GB/s, that size, correct, network.
NCCL: dict[str, tuple[float | None, int, bool | None, str]] = {
    "awsome-batch": (483.05, 16 * GIB, True, ""),
    "awsome-p5-k8s": (437.79, 2 * GIB, True, ""),
    "awsome-p5-srun-prefixed": (487.09, 16 * GIB, True, ""),
    "awsome-topology-aware": (369.42, 16 * GIB, True, ""),
    "azure-bad-minbytes": (None, 0, None, ""),
    "azure-mpi-bad-gpu-count": (None, 0, None, ""),
    "azure-mpi-ppr-rejected": (None, 0, None, ""),
    "cscs-gh200-2.18": (22.86, 2**27, True, ""),
    "cscs-gh200-ofi-fast": (122.57, 2**27, True, ""),
    "cscs-gh200-socket-slow": (5.41, 2**27, True, ""),
    "dcgm-mock-fail-oob": (None, 2**25, False, ""),
    "deepops-netop": (188.53, 4 * GIB, True, ""),
    "deepops-roce": (22.85, 2 * GIB, True, ""),
    "deepops-slurm": (191.05, 4 * GIB, True, ""),
    "dstack-a3mega": (188.54, 8 * GIB, None, ""),
    "dstack-a4-b200": (679.54, 8 * GIB, True, ""),
    "dstack-nebius": (467.54, 8 * GIB, True, ""),
    "eks-16gpu-tail-efa": (438.85, 2 * GIB, True, ""),
    "eks-2gpu-efa": (2.82, GIB, True, "efa"),
    "eks-g4dn-2gpu-efa-ncclinfo": (3.11, GIB, True, "efa, 1 device"),
    "eks-p4d-16gpu-efa-full-ncclinfo": (43.72, 4 * GIB, True, "efa"),
    "gcm-a100-pairwise": (181.39, GIB, True, ""),
    "gcm-a100-single": (231.7, GIB, True, ""),
    "gcm-not-enough-slots": (None, 0, None, ""),
    "gke-a3mega-allgather": (188.73, 8 * GIB, True, ""),
    "gke-a3u-1gpu-4w-a": (None, 0, None, ""),
    "gke-b200-b": (None, 0, None, ""),
    "gke-mpi-operator-openib-warnings": (31.88, 8 * GIB, True, ""),
    "gke-slurm": (None, 8 * GIB, True, ""),
    "superbench-allgather.log": (223.39, 8 * GIB, None, ""),
    "superbench-allreduce.log": (235.03, 8 * GIB, None, ""),
    "superbench-alltoall.log": (224.31, 8 * GIB, None, ""),
}
# Of the largest size, in GB/s: the first and the last are printed in GiB/s.
NCCOM: dict[str, tuple[float, int, bool | None]] = {
    "neuron-sdk-01-L28": (43.690555, 2**25, None),
    "neuron-sdk-02-L587": (43.690555, 2**25, None),
    "neuron-sdk-04-L619": (56.725781, GIB, None),
    "neuron-sdk-07-L678": (21.93, 2**19, True),
    "neuron-sdk-08-L690": (30.92, 2**19, None),
    "neuron-sdk-09-L702": (21.98, 2**19, True),
    "neuron-sdk-10-L752": (103.89, 2**29, None),
    "neuron-sdk-12-L794": (16.71, 2**20, True),
    "neuron-sdk-13-L831": (50.562502, GIB, None),
}


@pytest.mark.parametrize("capture", of_topic("nccl-tests"))
def test_every_captured_log_of_nccl_tests_is_read(capture: Any) -> None:
    read = nccl(capture.text)
    found = (read.busbw_gb_per_s, read.size_bytes, read.is_correct, read.network)
    assert found == NCCL[capture.name.removesuffix(".txt")]
    assert bool(read.problem) == (read.busbw_gb_per_s is None)


@pytest.mark.parametrize("capture", of_topic("nccom-test"))
def test_every_captured_log_of_nccom_test_is_read(capture: Any) -> None:
    read = nccom(capture.text)
    assert (read.busbw_gb_per_s, read.size_bytes, read.is_correct) == NCCOM[capture.name.removesuffix(".txt")]
    assert not read.problem


@pytest.mark.parametrize(("folder", "expected"), [("nccl-tests", NCCL), ("nccom-test", NCCOM)])
def test_no_sample_of_the_folders_is_left_out(folder: str, expected: dict[str, Any]) -> None:
    if not FOLDER.is_dir():
        pytest.skip(f"no captures: {FOLDER} is absent")
    assert {file.name.removesuffix(".txt") for file in (FOLDER / folder).iterdir()} == set(expected)


@pytest.mark.parametrize(
    ("file", "end", "words"),
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
def test_a_run_that_failed_has_no_bandwidth_and_one_line_that_says_why(file: str, end: int | None, words: str) -> None:
    read = nccl(sample(f"nccl-tests/{file}.txt").text, end)
    assert read.busbw_gb_per_s is None
    assert read.problem.startswith(words)
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
    ("network", "said"),
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
def test_the_network_is_what_nccls_own_lines_name(network: str, said: str) -> None:
    assert nccl(nccl_log(network=network)).network == said


def test_where_nccl_names_no_network_the_counters_tell_it_and_only_where_they_account_for_the_bytes() -> None:
    text = nccl_log(network="")
    sent = {f"efa:rdmap{device}s0": GIB for device in range(16)} | {"net:eth0": 10_000}
    read = nccl_tests.read(MeterSettings(), (Output(text, 0, sent),))
    assert read.network == "efa, 16 devices"
    assert nccl_tests.read(MeterSettings(), (Output(text, 0, {"net:eth0": GIB}),)).network == ""


@pytest.mark.parametrize(
    ("summary", "rows"),
    [
        ("# Out of bounds values : 2 FAILED\n", NCCL_ROWS),
        ("# Out of bounds values : 0 OK\n", NCCL_ROWS.replace("45.21      0", "45.21      7")),
    ],
)
def test_wrong_values_are_no_bandwidth(summary: str, rows: str) -> None:
    read = nccl(nccl_log(rows=rows, summary=summary))
    assert (read.busbw_gb_per_s, read.is_correct) == (None, False)
    assert "wrong results" in read.problem


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
            "the ranks did not find each other: its MPI was told of no other rank",
            True,
        ),
    ],
    ids=["no MPI", "no PMI", "a script", "Open MPI 4"],
)
def test_ranks_that_each_ran_alone_are_told_with_what_is_missing(
    text: str, end: int, problem: str, is_apart: bool
) -> None:
    read = nccl(text, end)
    assert (read.busbw_gb_per_s, read.problem, read.is_apart) == (None, problem, is_apart)


def test_a_library_that_is_not_found_is_told_with_how_to_say_where_it_is() -> None:
    line = "/opt/nccl-tests/build/all_reduce_perf: error while loading shared libraries: libmpi.so.40: cannot open"
    noise = "hwloc/linux: failed to find sysfs cpu topology directory, aborting linux discovery.\n"
    read = nccl(f"{noise}{line} shared object file: No such file or directory\n", 127)
    assert read.problem == (
        f"it ended with 127; {line} shared object file: No such file or directory; expected its folder in "
        "LD_LIBRARY_PATH: by a module that is loaded first, or --meter-env"
    )


@needs_openmpi
def test_a_rank_tells_with_which_mpi_its_program_is_linked(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "testbed" / "tools" / "all_reduce.c"
    (tmp_path / "alone.c").write_text("int main(void) { return 0; }\n")
    for made, data in (
        (compiled.program(source, compiler="mpicc"), r"^# MPI library: libmpi\.so\.\d+$"),
        (compiled.program(tmp_path / "alone.c"), r"^# MPI library: $"),
        (b"#!/bin/sh\n", r"\A(?!.*MPI library)"),
    ):
        (tmp_path / "all_reduce_perf").write_bytes(made)
        (tmp_path / "all_reduce_perf").chmod(0o755)
        said = sh(nccl_tests.ranks(MeterSettings(options="-h")), str(tmp_path), SLURM_LOCALID="0").stdout
        assert re.search(data, said, re.MULTILINE | re.DOTALL), said
    assert "MPI library" not in sh(nccl_tests.ranks(MeterSettings()), str(tmp_path), SLURM_LOCALID="1").stdout


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
def test_a_node_is_to_blame_only_where_the_text_names_that_one(line: str, culprit: str) -> None:
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
    "#  size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n" + "9 " * 50_000,
    "NCCL INFO " * 100_000,
    "[1,0]<stdout>:" * 50_000,
    ("1 a:1:1 [0] NCCL INFO x\n") * 50_000,
    nccom_log().replace("36.30", "nan").replace("71.33", "inf"),
    nccom_log().replace("231.10", "0"),
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", sorted(METERS))
@pytest.mark.parametrize("end", [None, 0, 1, -11])
def test_hostile_output_raises_nothing_and_says_one_printable_line(name: str, text: str, end: int | None) -> None:
    read = METERS[name].read(MeterSettings(), (Output(text, end), Output(text, end)))
    assert (read.busbw_gb_per_s is None) == bool(read.problem)
    assert read.problem.isprintable()
    assert len(read.problem) <= 300


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


# Command lines


def sh(script: str, path: str, **environment: str) -> subprocess.CompletedProcess[str]:
    data = {"PATH": f"{path}:/usr/bin:/bin", **environment}
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, env=data)


def program(
    folder: Path, name: str, text: str = 'printf "%s\\n" "$0" "$@"; env | grep -E "^(NCCL|LC_ALL|NEURON)"\n'
) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o755)
    return file


def test_the_command_of_a_rank_measures_one_large_size_with_checked_results(tmp_path: Path) -> None:
    found = program(tmp_path, "all_reduce_perf")
    ran = sh(nccl_tests.ranks(MeterSettings(size_bytes=8 * GIB, options="-d 'b f16'")), str(tmp_path))
    data = ran.stdout.splitlines()
    size = str(8 * GIB)
    assert data[:17] == [
        *(str(found), "-b", size, "-e", size, "-f", "2", "-g", "1", "-c", "1"),
        *("-n", "20", "-w", "5", "-d", "b f16"),
    ]
    assert {"NCCL_DEBUG=INFO", "NCCL_DEBUG_SUBSYS=INIT,NET", "LC_ALL=C"} <= set(data)


def test_a_users_environment_comes_before_the_meters_own(tmp_path: Path) -> None:
    program(tmp_path, "all_gather_perf")
    settings = MeterSettings(collective="all_gather", environment={"NCCL_DEBUG": "it's $HOME"})
    assert "NCCL_DEBUG=it's $HOME" in sh(nccl_tests.ranks(settings), str(tmp_path)).stdout


def test_the_default_size_is_never_below_1_gib() -> None:
    assert f" -b {GIB} -e {GIB} " in nccl_tests.ranks(MeterSettings())
    assert f" -b {GIB} -e {GIB} " in nccom_test.ranks(MeterSettings())


@pytest.mark.parametrize(
    ("name", "command", "words"),
    [
        (
            "nccl-tests",
            nccl_tests.ranks,
            "all_reduce_perf is not installed: looked on PATH, in /opt/nccl-tests/build, in",
        ),
        (
            "nccom-test",
            nccom_test.ranks,
            "nccom-test is not installed: looked on PATH, in /opt/aws/neuron/bin; install",
        ),
        (
            "nccl-tests",
            lambda _: nccl_tests.ranks(MeterSettings(program="/nowhere/it's")),
            "/nowhere/it's is not a program here; install nccl-tests, built with MPI=1",
        ),
    ],
)
def test_a_program_that_is_not_there_ends_with_127_and_is_a_problem_that_says_what_to_do(
    name: str, command: Any, words: str, tmp_path: Path
) -> None:
    ran = sh(command(MeterSettings()), str(tmp_path))
    assert (ran.returncode, ran.stdout) == (127, "")
    read = METERS[name].read(MeterSettings(), (Output(ran.stderr, ran.returncode),))
    host = os.uname().nodename
    assert read.problem.startswith(f"it ended with 127; clusterproof: {host}: {words}")
    assert read.culprit == host


@pytest.mark.parametrize("meter", [nccl_tests, nccom_test])
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (MeterSettings(collective="all;reduce"), "'all;reduce' is no collective; expected one of all_reduce"),
        (MeterSettings(options="-x 'open"), "expected words as in a shell"),
        (MeterSettings(environment={"A B": "1"}), "'A B' is no name of a variable"),
    ],
)
def test_settings_that_make_no_command_are_one_clear_error(meter: Any, settings: MeterSettings, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        meter.ranks(settings)


def test_the_first_rank_starts_nccom_test_on_both_nodes_and_the_others_end(tmp_path: Path) -> None:
    found = program(tmp_path, "nccom-test")
    script = nccom_test.ranks(MeterSettings(ranks_per_node=32, collective="all_gather"))
    ran = sh(script, str(tmp_path), CLUSTERPROOF_HOSTS="10.0.0.1 10.0.0.2", SLURM_PROCID="0")
    words = "-r 64 -N 2 -b 1073741824 -e 1073741824 -f 2 -n 20 -w 5 -d fp32 --check --non-interactive allg"
    data = [
        f"nccom-test {words} --hosts 10.0.0.1 10.0.0.2",
        str(found),
        *words.split(),
        "--hosts",
        "10.0.0.1",
        "10.0.0.2",
    ]
    assert ran.stdout.splitlines()[: len(data)] == data
    assert "NEURON_RT_ROOT_COMM_ID=10.0.0.1:45654" in ran.stdout
    other = sh(script, str(tmp_path), CLUSTERPROOF_HOSTS="10.0.0.1 10.0.0.2", SLURM_PROCID="1")
    assert (other.returncode, other.stdout) == (0, "")


@pytest.mark.parametrize(
    ("gpus", "neuron_devices", "name"), [(8, 0, "nccl-tests"), (0, 16, "nccom-test"), (0, 0, "iperf3")]
)
def test_the_meter_follows_from_what_a_node_has(gpus: int, neuron_devices: int, name: str) -> None:
    assert meter_for(gpus, neuron_devices) is METERS[name]
