"""File systems and diagnostics under load: what they are compared with, and what proves nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from clusterproof.plugins.catalog import floor, floors
from clusterproof.plugins.catalog.instance_types import instance_types
from clusterproof.plugins.catalog.nvidia import severity_in_words
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.policy import Policy
from clusterproof.plugins.core.verdict import Incomplete, Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.evidence.perf.facts import PingpongRun
from clusterproof.plugins.suite.state import is_named
from tests.builders.samples import sample
from tests.checks.perf.given import evaluated, ran
from tests.testbed.outputs import dcgm_json, nccom_log

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
    ],
)
def test_an_exchange_has_a_row_and_a_good_end(data: dict[str, Any], speed: float | None) -> None:
    assert PingpongRun({"domain": "d", **data}).mb_per_s == speed


def test_an_exchange_that_ended_well_without_a_row_is_not_known_to_have_failed() -> None:
    with pytest.raises(Incomplete, match="d: no row of bandwidth"):
        _ = PingpongRun({"domain": "d", "exit": 0, "output": PINGPONG.partition("\n")[0], "server": ""}).mb_per_s


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


@pytest.mark.parametrize("status", [205, -9])
def test_a_pass_with_a_failing_exit_status_or_a_signal_is_no_pass(status: int) -> None:
    result = evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": ran(dcgm_json(), status, "dcgmi diag -r 2 -j")})
    assert (result.verdict, result.observed) == (
        INCOMPLETE,
        f"every test passed, but dcgmi exited with status {status}",
    )
    value = ran(nccom_log(), status, "nccom-test -r 64 allr")
    result = evaluated("neuron.nccom", "nccom", {"gpu001": value}, "trn1.32xlarge")
    assert (result.verdict, f"nccom-test exited with status {status}; expected 0" in result.message) == (
        INCOMPLETE,
        True,
    )


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


BLOCKED = "The nouveau kernel module is loaded"


def printed_by_dcgm(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A run whose JSON has these results of the test `software`."""
    category = {"category": "Deployment", "tests": [{"name": "software", "results": results, **more}]}
    return ran(json.dumps({"DCGM Diagnostic": {"test_categories": [category]}}), 226, "dcgmi diag -r 1 -j")


def of_gpu(number: int, status: str, *warnings: str) -> dict[str, Any]:
    """The result of one GPU, as DCGM 4 prints it."""
    return {"entity_group": "GPU", "entity_id": number, **of_all(status, *warnings)}


def of_all(status: str, *warnings: str) -> dict[str, Any]:
    """The same without a GPU, as in a test's summary."""
    reported = [{"warning": warning, "error_severity": 2} for warning in warnings]
    return {"status": status, **({"warnings": reported} if reported else {})}


@pytest.mark.parametrize(
    ("results", "summary", "message"),
    [
        ([of_gpu(0, "Pass"), of_gpu(1, "Pass")], of_all("Fail"), "software: fail"),
        ([of_gpu(0, "Pass")], of_all("Fail", BLOCKED), f"software: fail (isolate: {{}}): {BLOCKED}"),
        (
            [of_gpu(0, "Fail")],
            of_all("Fail", BLOCKED),
            f"software on GPU 0: fail, software: fail (isolate: {{}}): {BLOCKED}",
        ),
        (
            [of_gpu(0, "Fail", "row remapping")],
            of_all("Fail", "row remapping"),  # since DCGM 4.5 it repeats what its GPUs report
            "software on GPU 0: fail (isolate: {}): row remapping",
        ),
    ],
)
def test_what_dcgm_says_of_a_test_as_a_whole_counts_beside_its_gpus(
    results: list[dict[str, Any]], summary: dict[str, Any], message: str
) -> None:
    value = printed_by_dcgm(*results, test_summary=summary)
    result = evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": value}, gpus=1)
    isolate = severity_in_words(2).partition(": ")[2]
    assert (result.verdict, result.message) == (FAIL, f"{message.format(isolate)}; expected every test to pass")


def test_what_dcgm_warns_of_in_a_test_that_passes_is_a_concern() -> None:
    """As where it found too little memory free to test (NVIDIA/DCGM#284)."""
    value = {**printed_by_dcgm(of_gpu(0, "Pass", "too little memory")), "exit": 0}
    result = evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": value}, gpus=1)
    assert result.verdict is CONCERN
    assert result.message.startswith("software on GPU 0: pass (isolate: ")
    assert result.message.endswith("): too little memory; expected no warning")


def test_a_test_whose_gpus_all_pass_passes_as_a_whole() -> None:
    value = {**printed_by_dcgm(of_gpu(0, "Pass"), test_summary=of_all("Pass")), "exit": 0}
    assert evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": value}, gpus=1).verdict is PASS


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"gpu_id": "3", "warnings": [{"warning": BLOCKED}]}, f"software on GPU 3: fail: {BLOCKED}"),
        ({"gpu_id": 3, "warnings": [{"warnings": BLOCKED}]}, f"software on GPU 3: fail: {BLOCKED}"),
        ({"gpu_id": -1, "warnings": [{"warnings": BLOCKED}]}, f"software: fail: {BLOCKED}"),
        ({"gpu_ids": "0,3", "warnings": [{"warning": BLOCKED}]}, f"software on GPU 0, 3: fail: {BLOCKED}"),
    ],
)
def test_the_gpu_and_the_message_of_dcgm_3_are_said_whatever_it_calls_them(
    result: dict[str, Any], message: str
) -> None:
    """DCGM 3.3 has `gpu_id`, -1 for none; in tests of the deployment, `warnings` in place of `warning`."""
    value = printed_by_dcgm({"status": "Fail", **result})
    assert evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": value}).message.startswith(f"{message}; expected every")


def test_a_run_of_dcgm_3_that_names_only_the_gpu_that_fails_was_on_all_whose_devices_it_lists() -> None:
    value = printed_by_dcgm({"status": "Fail", "gpu_id": 3})
    listed = {**json.loads(value["output"]), "GPU Device IDs": ["2330"] * 8}
    result = evaluated("gpu.dcgm_diag", "dcgm_diag", {"gpu001": {**value, "output": json.dumps(listed)}})
    assert result.message == "software on GPU 3: fail; expected every test to pass"


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
