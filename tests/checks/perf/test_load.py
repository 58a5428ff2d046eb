"""File systems, diagnostics and collectives under load: what they are compared with, and what proves nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.catalog import floor, floors
from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.perf.facts import PingpongRun
from clusterproof.plugins.suite.state import is_named
from tests.builders.samples import sample
from tests.checks.perf.given import evaluated, ran
from tests.testbed.outputs import NCCL_ROWS, NCCL_SUMMARY, dcgm_json, nccl_log

FAIL, CONCERN, INCOMPLETE, PASS, NA = (
    *(Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE),
    *(Verdict.PASS, Verdict.NOT_APPLICABLE),
)
USUAL = "dcgmi diag -r 2 -j; echo exit: $?"
PINGPONG = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
1m      200     =200     400m        0.57s   3653.77     286.98       0.00
"""


@pytest.mark.parametrize(
    ("data", "speed"),
    [
        ({"exit": 0, "output": PINGPONG, "server": ""}, 3653.77),
        ({"exit": 5, "output": PINGPONG, "server": ""}, None),
        ({"exit": None, "output": "", "server": "fi_getinfo: -61"}, None),
        ({"exit": 0, "output": PINGPONG.partition("\n")[0], "server": ""}, None),
    ],
)
def test_an_exchange_has_a_row_and_a_good_end(data: dict[str, Any], speed: float | None) -> None:
    assert PingpongRun({"domain": "d", **data}).mb_per_s == speed


def test_every_floor_is_of_a_type_in_the_catalogue_and_has_a_source() -> None:
    assert floors().keys() <= instance_types().keys()
    assert all(row.source and row.value > 0 for rows in floors().values() for row in rows.values())
    assert floor("p5.48xlarge", "all_reduce") == 440
    assert floor("p5.48xlarge", "unheard of") is floor("unheard.of", "all_reduce") is None


# Files


def written(write: float, read: float, folder: str = "/fsx") -> dict[str, object]:
    """10 GB each way, at these GB/s."""
    ways = {"write": write, "read": read}
    return {"folder": folder, **{way: {"bytes": 10**10, "seconds": 10 / speed} for way, speed in ways.items()}}


@pytest.mark.parametrize(
    ("own", "verdict"), [((2.0, 3.0), PASS), ((1.7, 2.5), PASS), ((1.5, 3.0), CONCERN), ((2.0, 2.3), CONCERN)]
)
def test_a_node_is_compared_with_what_most_write_and_read(own: tuple[float, float], verdict: Verdict) -> None:
    values = {"gpu001": written(*own), "gpu002": written(2, 3), "gpu003": written(2, 3), "gpu004": written(2, 3)}
    assert evaluated("storage.fs_bandwidth", "fs_bandwidth", values).verdict is verdict


def test_the_speed_of_a_single_node_is_reported_and_not_evaluated() -> None:
    result = evaluated("storage.fs_bandwidth", "fs_bandwidth", {"gpu001": written(2, 3)})
    assert (result.verdict, result.observed) == (INCOMPLETE, "/fsx: write 2 GB/s, read 3 GB/s")


def test_a_site_has_a_limit_of_its_own() -> None:
    policy = Policy(thresholds={"load.fs_gb_per_s": 2.5})
    result = evaluated("storage.fs_bandwidth", "fs_bandwidth", {"gpu001": written(2, 3)}, policy=policy)
    assert (result.verdict, result.message) == (CONCERN, "/fsx: write 2 GB/s; expected at least 2.5 GB/s")


# DCGM: the same rule for runs and captures


@pytest.mark.parametrize(
    ("file", "verdict"),
    [("gcm-diag-pass.json", PASS), ("gcm-diag-warn.json", CONCERN), ("gcm-diag-pass-exit205.json", PASS)],
)
def test_a_captured_answer_of_dcgm_is_evaluated_as_if_it_had_been_run(file: str, verdict: Verdict) -> None:
    value = ran(sample(f"dcgmi/{file}").text, 0, "dcgmi diag -r 2 -j")
    assert evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": value}).verdict is verdict


def test_a_pass_with_a_failing_exit_status_is_no_pass() -> None:
    result = evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": ran(dcgm_json(), 205, "dcgmi diag -r 2 -j")})
    assert (result.verdict, result.observed) == (INCOMPLETE, "every test passed, but dcgmi exited with status 205")


@pytest.mark.parametrize(("instance_type", "verdict"), [("p5.48xlarge", INCOMPLETE), ("c6i.32xlarge", NA)])
@pytest.mark.parametrize(
    ("check", "collector"),
    [("gpu.dcgm_diag", "dcgm_diag"), ("gpu.gpu_gemm", "gpu_gemm"), ("gpu.node_busbw", "node_busbw")],
)
def test_whether_a_gpu_is_missing_depends_on_the_type(
    check: str, collector: str, instance_type: str, verdict: Verdict
) -> None:
    value = {"none": "no NVIDIA GPU"}
    assert evaluated(check, collector, {"gpu001": value}, instance_type).verdict is verdict


def test_a_type_with_one_gpu_has_nothing_to_reduce_over() -> None:
    value = {"none": "one GPU: there is no link to reduce over"}
    assert evaluated("gpu.node_busbw", "node_busbw", {"gpu001": value}, "g6.xlarge").verdict is NA


TIMED_OUT = "dcgmi diag -r 4 -j does not end within 9 s; its last words: busy"


@pytest.mark.parametrize(
    ("collected", "command"),
    [
        (Collected(Status.READ, ran(dcgm_json(), command="dcgmi diag -r 3 -j")), "dcgmi diag -r 3 -j; echo exit: $?"),
        (
            Collected(Status.READ, ran("Error: ", 255, "dcgmi diag -r 3 -p pcie.a=1;diagnostic.b=-2.5 -j")),
            "dcgmi diag -r 3 -p 'pcie.a=1;diagnostic.b=-2.5' -j; echo exit: $?",
        ),
        (
            Collected(Status.READ, ran("", command="dcgmi diag -r 3 -p name-1=300 -j")),
            "dcgmi diag -r 3 -p name-1=300 -j; echo exit: $?",
        ),
        (Collected(Status.TIMED_OUT, detail=TIMED_OUT), "dcgmi diag -r 4 -j; echo exit: $?"),
        (Collected(Status.READ, {"logs": []}), USUAL),
        (Collected(Status.READ, ran("", command="dcgmi diag -r 2 -p pcie.a=$(reboot) -j")), USUAL),
        (Collected(Status.READ, ran("", command="dcgmi diag -r 2 -p pcie.a=1;reboot -j")), USUAL),
        (Collected(Status.READ, ran("", command="dcgmi diag -r 2 -p pcie.a='b' -j")), USUAL),
        (Collected(Status.READ, ran("", command="reboot; dcgmi diag -r 3 -j")), USUAL),
        (Collected(Status.READ, {"command": ["dcgmi"]}), USUAL),
        (Collected(Status.NOT_ASKED), USUAL),
    ],
)
def test_the_command_to_see_it_is_the_one_that_ran_and_nothing_else_that_a_node_says(
    collected: Collected, command: str
) -> None:
    node = nodes(Cluster("c", "local", (Target("a"),)), {"a": NodeEvidence("a", {"dcgm_diag": collected})})["a"]
    assert evaluate(all_checks()["gpu.dcgm_diag"], node).evidence == command


def diagnosed(status: str, status_of_exit: int, *severities: int) -> dict[str, Any]:
    """A captured run of dcgmi diag with this result of its memory test on GPU 3."""
    messages = [{"text": f"error {number}", "severity": severity} for number, severity in enumerate(severities)]
    results = [{"gpu": "3", "status": status, "messages": messages}]
    tests = [{"name": "memory", "results": results}]
    return {"exit": status_of_exit, "complete": True, "runtime_error": "", "gpus": 8, "tests": tests}


def test_each_severity_that_dcgm_gives_a_result_is_said() -> None:
    value = {"logs": [diagnosed("fail", 226, 4, 2)]}
    message = evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": value}).message
    assert "(triage: look for the cause with the named test alone, isolate: take the GPU out of use" in message


def test_the_exit_status_of_one_run_is_said_beside_the_warning_of_another() -> None:
    value = {"logs": [diagnosed("warn", 0), diagnosed("pass", 205)]}
    result = evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": value})
    assert result.verdict is INCOMPLETE
    assert "every test passed, but dcgmi exited with status 205; expected 0" in result.message
    assert "concern: memory on GPU 3: warn" in result.message


# NCCL


@pytest.mark.parametrize(
    ("file", "instance_type", "verdict", "message"),
    [
        ("gcm-a100-single.txt", "p4de.24xlarge", PASS, ""),
        ("gcm-a100-single.txt", "p5.48xlarge", CONCERN, "all-reduce of 1 GiB: 231.7 GB/s; expected 440"),
        ("gcm-a100-single.txt", "p5en.48xlarge", INCOMPLETE, "expected further nodes to compare with"),
        ("dcgm-mock-fail-oob.txt", "p5.48xlarge", FAIL, "expected 0"),
        ("azure-mpi-bad-gpu-count.txt", "p5.48xlarge", INCOMPLETE, "measured nothing"),
    ],
)
def test_a_captured_log_of_nccl_tests_is_evaluated(
    file: str, instance_type: str, verdict: Verdict, message: str
) -> None:
    value = {"gpus": 8, **ran(sample(f"nccl-tests/{file}").text, 0, "all_reduce_perf")}
    result = evaluated("gpu.node_busbw", "node_busbw", {"gpu001": value}, instance_type)
    assert result.verdict is verdict, result.message
    assert message in result.message


def all_reduce(busbw: float = 450.0, status: int = 0, **log: str) -> dict[str, object]:
    """A run of all_reduce_perf over one size of 1 GiB."""
    row = f"{2**30} {2**28} float sum -1 4253.0 252.47 {busbw:.2f} 0 4255.4 252.33 473.12 0\n"
    return {"gpus": 8, **ran(nccl_log(**{"network": "", "rows": row} | log), status, "all_reduce_perf")}


@pytest.mark.parametrize(
    ("own", "others", "instance_type", "verdict", "message"),
    [
        (all_reduce(), [], "p5.48xlarge", PASS, ""),
        (all_reduce(430), [], "p5.48xlarge", CONCERN, "all-reduce of 1 GiB: 430 GB/s; expected 440 as others measured"),
        (all_reduce(), [], "p5en.48xlarge", INCOMPLETE, "450 GB/s; expected further nodes to compare with"),
        (all_reduce(), [all_reduce()], "p5en.48xlarge", INCOMPLETE, "450 GB/s; expected further nodes to compare with"),
        (all_reduce(), [all_reduce()] * 2, "p5en.48xlarge", PASS, ""),
        (all_reduce(400), [all_reduce()] * 2, "p5en.48xlarge", FAIL, "below the median of 3 nodes (450)"),
        (all_reduce(status=3), [], "p5.48xlarge", INCOMPLETE, "ended with exit status 3 after 1 GiB; expected 0"),
        (all_reduce(summary=""), [], "p5.48xlarge", INCOMPLETE, "ended with exit status 0 after 1 GiB"),
        (
            all_reduce(summary=NCCL_SUMMARY.replace("0 OK", "3 OK")),
            [],
            "p5.48xlarge",
            FAIL,
            "out of bounds values: 3 OK",
        ),
        (all_reduce(summary=NCCL_SUMMARY.replace("0 OK", "0 FAILED")), [], "p5.48xlarge", FAIL, "values: 0 FAILED"),
        (all_reduce(rows=NCCL_ROWS.replace("    0  ", "  N/A  ")), [], "p5.48xlarge", INCOMPLETE, "no check of 1 GiB"),
        (all_reduce(rows=NCCL_ROWS.replace(" 473.38", "    N/A")), [], "p5.48xlarge", INCOMPLETE, "no bandwidth or no"),
        (all_reduce(rows=""), [], "p5.48xlarge", INCOMPLETE, "measured nothing (exit status 0); expected a row"),
    ],
)
def test_an_all_reduce_within_a_node_is_evaluated_by_its_largest_message(
    own: Any, others: list[Any], instance_type: str, verdict: Verdict, message: str
) -> None:
    values = {f"gpu{number:03}": value for number, value in enumerate((own, *others), 1)}
    result = evaluated("gpu.node_busbw", "node_busbw", values, instance_type)
    assert result.verdict is verdict, result.message
    assert message in result.message


def test_a_slow_all_reduce_whose_end_is_unknown_is_slow_nevertheless() -> None:
    others = {f"gpu00{number}": all_reduce() for number in (2, 3)}
    unended = {key: value for key, value in all_reduce(300).items() if key != "exit"}
    result = evaluated("gpu.node_busbw", "node_busbw", {"gpu001": unended, **others})
    assert result.verdict is FAIL
    assert "300 GB/s, 33 % below the median of 3 nodes" in result.message
    assert "incomplete: all_reduce_perf ended with exit status None" in result.message


@pytest.mark.parametrize(("others", "verdict"), [(1, INCOMPLETE), (2, PASS)])
def test_few_nodes_are_no_measure_of_a_file_system(others: int, verdict: Verdict) -> None:
    values = {f"gpu{number:03}": written(2, 3) for number in range(1, others + 2)}
    assert evaluated("storage.fs_bandwidth", "fs_bandwidth", values).verdict is verdict


def test_a_node_under_load_that_reported_nothing_is_incomplete_and_says_why() -> None:
    lost = NodeEvidence("gpu001", {"gpu_gemm": Collected(Status.TIMED_OUT, detail="python3 does not end within 170 s")})
    node = nodes(Cluster("c", "local", (Target("gpu001"),)), {"gpu001": replace(lost)})["gpu001"]
    result = evaluate(all_checks()["gpu.gpu_gemm"], node)
    assert (result.verdict, result.observed) == (
        INCOMPLETE,
        "gpu_gemm: did not answer in time (python3 does not end within 170 s)",
    )


@pytest.mark.parametrize(
    ("markexpr", "named"),
    [
        *(("perf", True), ("perf and gpu", True), ("gpu and (perf or prolog)", True)),
        *(("", False), ("gpu", False), ("not perf", False), ("gpu and not perf", False), ("performance", False)),
    ],
)
def test_load_is_put_on_nodes_only_where_m_asks_for_it(markexpr: str, named: bool) -> None:
    assert is_named(markexpr, "perf") is named
