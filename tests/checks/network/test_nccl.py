"""Checks on captured logs of NCCL and of Neuron's nccom-test that no fault of the matrix has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf import parse_nccl as nccl_tests
from clusterproof.plugins.evidence.perf import parse_nccom as nccom
from tests.builders.evaluated import result_of
from tests.builders.recordings import node
from tests.testbed.outputs import NCCL_NETWORK, NCCL_ROWS, NCCL_SUMMARY, nccl_log, nccom_log

FAIL, CONCERN, INCOMPLETE = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE
NA, PASS = Verdict.NOT_APPLICABLE, Verdict.PASS
SOCKET = "NCCL INFO Using network Socket\n"
LIBFABRIC = "NCCL INFO Using network Libfabric\n"
PROVIDER = "NCCL INFO NET/OFI Selected provider is efa\n"
IB = {"name": "mlx5_0", "vendor": "15b3", "device": "1021", "ports": []}
EFA = {"name": "rdmap79s0", "vendor": "1d0f", "device": "efa2", "ports": []}


def transport(network: str, *devices: Mapping[str, Any], efa: int = 32, instance_type: str = "p5.48xlarge") -> Result:
    """The result on a log with these lines, on a node with those devices."""
    collectors = {
        **nccl_tests.read(nccl_log(network=network)),
        "rdma": {"devices": list(devices)},
        "pci": {"devices": []},
    }
    expect = {"efa": efa}
    return result_of("network.nccl_transport", node("gpu001", **collectors), instance_type=instance_type, expect=expect)


@pytest.mark.parametrize(
    ("network", "efa", "verdict", "message"),
    [
        (NCCL_NETWORK, 32, PASS, ""),
        (NCCL_NETWORK, 33, CONCERN, "NCCL used EFA with 32 of 33 devices"),
        (LIBFABRIC, 32, INCOMPLETE, "does not name the provider"),
        (PROVIDER + LIBFABRIC, 32, INCOMPLETE, "does not say with how many devices"),
        (SOCKET, 32, FAIL, "NCCL used network Socket; expected EFA"),
        (SOCKET, 0, NA, "p5.48xlarge has no EFA"),
    ],
)
def test_nccl_uses_every_efa_device(network: str, efa: int, verdict: Verdict, message: str) -> None:
    result = transport(network, efa=efa)
    assert result.verdict is verdict, result.message
    assert message in result.message


def test_the_devices_that_are_there_count_before_those_that_are_expected() -> None:
    assert transport(NCCL_NETWORK, *[EFA] * 31).verdict is PASS
    assert transport(NCCL_NETWORK, *[EFA] * 33).verdict is CONCERN


@pytest.mark.parametrize(
    ("network", "devices", "verdict", "message"),
    [
        (SOCKET, [IB], CONCERN, "NCCL used the network Socket; expected InfiniBand or RoCE, which this node has"),
        (SOCKET, [], NA, "this node has no EFA"),
        ("NCCL INFO Using network IB\n", [IB], NA, "this node has no EFA"),
    ],
)
def test_tcp_is_odd_without_efa_where_there_is_a_faster_network(
    network: str, devices: list[Mapping[str, Any]], verdict: Verdict, message: str
) -> None:
    result = transport(network, *devices, efa=0, instance_type="")
    assert result.verdict is verdict, result.message
    assert message in result.message


def correct(text: str) -> Result:
    return result_of("network.nccl_correct", node("gpu001", **nccl_tests.read(text)), instance_type="p5.48xlarge")


@pytest.mark.parametrize(
    ("text", "verdict", "message"),
    [
        (nccl_log(), PASS, ""),
        (nccl_log(rows=NCCL_ROWS.replace("45.21      0", "45.21    N/A")), PASS, ""),  # the other half was checked
        (nccl_log(rows=NCCL_ROWS.replace("45.21      0", "45.21      2")), FAIL, "2 wrong values at 1048576 bytes"),
        (  # all are wrong, and the run was killed before its summary; nccl-tests print numbers with %g
            nccl_log(rows=NCCL_ROWS.replace("45.21      0", "45.21 1.34218e+08"), summary=""),
            FAIL,
            "134218000 wrong values at 1048576 bytes",
        ),
        (nccl_log(summary=NCCL_SUMMARY.replace("0 OK", "3 OK")), FAIL, "out of bounds values: 3 OK; expected 0 OK"),
        (nccl_log(summary=NCCL_SUMMARY.replace("0 OK", "0 FAILED")), FAIL, "out of bounds values: 0 FAILED"),
        (
            nccl_log() + nccl_log(summary=""),
            INCOMPLETE,
            "a run in the log has no line `Out of bounds values`; expected",
        ),
        (
            nccl_log(summary="") + nccl_log(),
            INCOMPLETE,
            "a run in the log has no line `Out of bounds values`; expected",
        ),
        (nccl_log(summary=NCCL_SUMMARY.replace("0 OK", "3 FAILED")) + nccl_log(summary=""), FAIL, "values: 3 FAILED"),
        (nccl_log() + nccl_log(), PASS, ""),
        (f"{nccl_log()}exit: 3\n", INCOMPLETE, "no value is wrong, but the run exited with status 3"),
        (f"{nccl_log()}exit: 0\n", PASS, ""),
    ],
)
def test_results_are_right_where_they_were_checked(text: str, verdict: Verdict, message: str) -> None:
    result = correct(text)
    assert result.verdict is verdict, result.message
    assert message in result.message


def beside_each_other(*logs: str) -> str:
    """The lines of runs that print at once, in turns."""
    return "\n".join(line for lines in zip(*(log.split("\n") for log in logs), strict=True) for line in lines)


def test_runs_that_did_not_know_of_each_other_prove_nothing_between_their_nodes() -> None:
    """As of nccl-tests that is built without MPI and started by mpirun."""
    first = nccl_log(network="").replace("gpu002", "gpu001")
    second = first.replace("gpu001", "gpu002")
    result = correct(beside_each_other(first, second))
    assert result.verdict is INCOMPLETE, result.message
    assert "2 runs at once, on gpu[001-002], each with a rank 0: nothing went between them" in result.message
    assert "expected nccl-tests built with MPI=1" in result.message
    assert correct(first + second).verdict is PASS  # one after the other
    assert "2 runs at once, on gpu001, each with a rank 0" in correct(beside_each_other(first, first)).message


def test_a_training_job_s_log_says_nothing_of_results() -> None:
    collectors = nccl_tests.read_nccl_log(f"n1:7:7 [0] {SOCKET}")
    result = result_of("network.nccl_correct", node("gpu001", **collectors), instance_type="p5.48xlarge")
    assert (result.verdict, result.message) == (NA, "no log of nccl-tests was captured")


def nccom_says(text: str) -> Result:
    return result_of("neuron.nccom", node("trn1", **nccom.read_table(text)), instance_type="trn1.32xlarge")


@pytest.mark.parametrize(
    ("text", "verdict", "message"),
    [
        (nccom_log(), PASS, ""),
        (nccom_log().replace("231.10", "    NA"), INCOMPLETE, "no time or bandwidth for 8388608 bytes"),
        (nccom_log().replace(" 71.33", "    NA"), INCOMPLETE, "no time or bandwidth for 8388608 bytes"),
        (f"{nccom_log()}exit: 2\n", INCOMPLETE, "exited with status 2; expected 0"),
        (nccom_log().partition("  65536")[0], INCOMPLETE, "nccom-test measured nothing"),
    ],
)
def test_a_log_of_nccom_proves_what_it_has_numbers_of(text: str, verdict: Verdict, message: str) -> None:
    result = nccom_says(text)
    assert result.verdict is verdict, result.message
    assert message in result.message


MANY = "".join(f"2026-Jul-21 ERROR TDRV:{at} failed to read a counter\n" for at in range(40))


def test_wrong_results_are_said_rather_than_other_errors() -> None:
    text = nccom_log(f"{MANY}Rank 3: data mismatch at element 7\nAvg bus bandwidth:      39.5000GB/s\n")
    result = nccom_says(text)
    assert result.verdict is FAIL
    assert result.message.startswith("Rank 3: data mismatch at element 7 (and 15 more); expected no error")


@pytest.mark.parametrize(
    ("command", "busbw", "verdict"),
    [
        ("nccom-test -r 32 allr\n", " 30.00", FAIL),
        ("nccom-test -r 32 allr\n", " 71.33", PASS),
        ("", " 30.00", PASS),  # the other nodes may have run something else
    ],
)
def test_nodes_that_ran_the_same_command_are_compared(command: str, busbw: str, verdict: Verdict) -> None:
    others = [node(f"trn{number}", **nccom.read_table(command + nccom_log())) for number in range(2, 6)]
    own = node("trn1", **nccom.read_table(command + nccom_log().replace(" 71.33", busbw)))
    assert result_of("neuron.nccom", own, *others, instance_type="trn1.32xlarge").verdict is verdict
