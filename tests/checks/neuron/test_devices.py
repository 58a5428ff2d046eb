"""Checks of Neuron devices on evidence that no fault of the testbed produces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import boot, node

FAIL, INCOMPLETE, NA, PASS = Verdict.FAIL, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE, Verdict.PASS
ABSENT, UNREAD = Collected(Status.ABSENT), {"error": "EIO", "text": ""}


def device(index: int, *connected: int) -> dict[str, Any]:
    counters = dict.fromkeys(("mem_ecc_uncorrected", "mem_ecc_repairable_uncorrected", "sram_ecc_uncorrected"), 0)
    return {"index": index, "serial": str(index), "cores": 2, "connected": list(connected), **counters}


def evaluated(
    check: str, *devices: dict[str, Any], instance_type: str = "", uptime_s: float = 86400.0, **collectors: Any
) -> Result:
    report = {"driver": "2.19", "on_bus": len(devices), "devices": list(devices)}
    evidence = node("trn1", **{"boot": boot(uptime_s=uptime_s), "neuron": report if devices else ABSENT} | collectors)
    return result_of(f"neuron.{check}", evidence, instance_type=instance_type)


@pytest.mark.parametrize(
    ("count", "instance_type", "uptime_s", "verdict", "message"),
    [
        (16, "trn1.32xlarge", 86400.0, PASS, ""),
        (16, "trn1.32xlarge", 9.0, PASS, ""),
        (15, "trn1.32xlarge", 86400.0, FAIL, "15 Neuron devices, 15 on the PCI bus; expected 16"),
        (15, "trn1.32xlarge", 9.0, INCOMPLETE, "15 Neuron devices, 9 s after boot; expected 16"),
        (0, "p5.48xlarge", 9.0, NA, "p5.48xlarge has no Neuron device"),
        (0, "", 9.0, NA, "this node has no Neuron device"),
        (2, "", 9.0, PASS, ""),
    ],
)
def test_devices_are_counted_once_the_node_has_settled(
    count: int, instance_type: str, uptime_s: float, verdict: Verdict, message: str
) -> None:
    devices = [device(index) for index in range(count)]
    result = evaluated("device_count", *devices, instance_type=instance_type, uptime_s=uptime_s)
    assert result.verdict is verdict, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("log", "instance_type", "verdict", "message"),
    [
        ({"lines": [], "truncated": False}, "trn1.32xlarge", PASS, ""),
        ({"lines": [], "truncated": True}, "trn1.32xlarge", INCOMPLETE, ""),
        ({"lines": [], "truncated": False}, "p5.48xlarge", NA, "p5.48xlarge has no Neuron device"),
        ({"lines": [], "truncated": False}, "", NA, "this node has no Neuron device"),
    ],
)
def test_no_error_in_a_whole_log_is_a_pass(
    log: dict[str, Any], instance_type: str, verdict: Verdict, message: str
) -> None:
    devices = [device(0)] if instance_type.startswith("trn") else []
    result = evaluated("no_hw_error", *devices, instance_type=instance_type, kernel_log=log)
    assert result.verdict is verdict, result.message
    assert message in result.message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("neuron: NEURON_HW_ERR=SRAM_UNCORRECTABLE_ERROR nd-id=3 nc-id=0", "SRAM_UNCORRECTABLE_ERROR of device 3"),
        (
            "neuron:nr_reset_thread_fn: nd3: reset request 12 was initiated, but failed to complete",
            "nd3: a reset did not end",
        ),
    ],
)
def test_an_error_in_the_log_is_named_where_nothing_else_of_the_devices_is_known(line: str, message: str) -> None:
    log = {"lines": [[10.0, line]], "truncated": False}
    result = evaluated("no_hw_error", neuron=Collected(Status.TIMED_OUT), kernel_log=log)
    assert message in result.message


def test_neuron_ls_that_hangs_fails_where_nothing_else_of_the_devices_is_known() -> None:
    hangs = Collected(Status.TIMED_OUT, detail="neuron-ls: no answer within 5 s")
    result = evaluated("devices_answer", neuron=Collected(Status.TIMED_OUT), neuron_ls=hangs)
    assert result.verdict is FAIL, result.message
    assert "neuron-ls: no answer within 5 s; expected an answer of its devices" in result.message


@pytest.mark.parametrize(
    ("devices", "verdict", "message"),
    [
        ([device(0)], NA, "a single device has no link"),
        ([device(0, 1), device(1, 0)], PASS, ""),
        ([device(0, 0), device(1, 1)], FAIL, "Neuron device 0, Neuron device 1: linked with none; expected others"),
        (
            [device(0, 1), device(1, 1, 2), device(2, 1)],
            FAIL,
            "Neuron device 0: linked with 1, which reports no link back",
        ),
        (
            [device(0, 1), device(1, 1, 2), {**device(2, 1), "index": UNREAD}],
            FAIL,
            "Neuron device 0: linked with 1, which reports no link back",
        ),
        ([{**device(0), "index": UNREAD}, device(1, 0)], FAIL, "linked with none; expected others of the node"),
    ],
)
def test_links_have_two_ends(devices: list[dict[str, Any]], verdict: Verdict, message: str) -> None:
    result = evaluated("connected", *devices)
    assert result.verdict is verdict, result.message
    assert message in result.message


@pytest.mark.parametrize("check", ["devices_answer", "no_leftover_processes"])
def test_an_answer_of_neuron_ls_that_is_no_list_is_incomplete(check: str) -> None:
    result = evaluated(check, device(0), neuron_ls={"exit": 0, "output": "no devices\n"})
    assert (result.verdict, result.message) == (INCOMPLETE, "neuron-ls says 'no devices'; expected a list of devices")


@pytest.mark.parametrize("check", ["devices_answer", "no_leftover_processes"])
@pytest.mark.parametrize(
    "output",
    ["Error: unknown flag: --json-output\n", "flag provided but not defined: -json-output\nUsage of neuron-ls:\n"],
)
def test_a_neuron_ls_that_does_not_know_the_option_proves_nothing(check: str, output: str) -> None:
    result = evaluated(check, device(0), instance_type="trn1.2xlarge", neuron_ls={"exit": 2, "output": output})
    expect(
        result, INCOMPLETE, "neuron-ls does not know --json-output, as from Neuron 2.34 on; expected a list of devices"
    )


def test_a_process_is_named_with_each_device_that_it_holds() -> None:
    holds = [{"pid": 4711, "command": "python3 train.py"}]
    listed = [{"neuron_device": index, "neuron_processes": holds if index else []} for index in range(3)]
    result = evaluated("no_leftover_processes", device(0), neuron_ls={"exit": 0, "output": json.dumps(listed)})
    assert result.message == "python3 (pid 4711) on devices 1, 2; expected no process on 1 device"


def test_a_device_that_neuron_ls_does_not_list_is_named_beside_one_whose_number_is_unread() -> None:
    devices = [{**device(0), "index": UNREAD}, device(1), device(2)]
    listing = '[{"neuron_device": 0}, {"neuron_device": 2}]'
    result = evaluated("devices_answer", *devices, neuron_ls={"exit": 0, "output": listing})
    assert (result.verdict, "neuron-ls does not list device 1; expected" in result.message) == (FAIL, True)


@pytest.mark.parametrize(
    ("one", "verdict", "message"),
    [
        ({"cores": 1}, FAIL, "Neuron device 3 has 1 cores; expected 2, like another device of the node"),
        ({"cores": {"error": "EIO", "text": ""}}, INCOMPLETE, "cores could not be read (EIO)"),
        ({"model": "Trainium1"}, Verdict.CONCERN, "devices are Trainium1 and Trainium2; expected one model"),
        ({"serial": "2"}, Verdict.CONCERN, "serial 2 of 2 devices; expected one each"),
    ],
)
def test_devices_of_a_node_are_alike(one: dict[str, Any], verdict: Verdict, message: str) -> None:
    devices = [{**device(index), "model": "Trainium2"} for index in range(3)]
    result = evaluated("device_count", *devices, {**device(3), "model": "Trainium2", **one})
    assert (result.verdict, message in result.message) == (verdict, True), result.message


def ran(busbw: float, *problems: str) -> dict[str, Any]:
    """A run of nccom-test with one size."""
    row = {"size_bytes": 2**30, "time_us": 9.0, "busbw_gb_per_s": busbw}
    return {"command": "allr -r 32", "avg_busbw_gb_per_s": busbw, "problems": list(problems), "exit": 0, "rows": [row]}


@pytest.mark.parametrize("speeds", [(100.0, 30.0), (30.0, 100.0)])
def test_each_run_of_nccom_is_compared_with_other_nodes(speeds: tuple[float, ...]) -> None:
    of_nodes = [speeds, *[(100.0,)] * 3]
    nodes = [node(f"trn{at}", nccom={"logs": [ran(speed) for speed in own]}) for at, own in enumerate(of_nodes)]
    result = result_of("neuron.nccom", *nodes)
    assert result.verdict is FAIL, result.message
    assert "allr -r 32, 1073741824 bytes: 30 GB/s, 70 % below the median of 4 nodes (100)" in result.message


def test_further_errors_of_a_run_of_nccom_are_counted() -> None:
    result = result_of("neuron.nccom", node("trn1", nccom={"logs": [ran(100.0, "NRT_EXEC on nd 3", "mismatch", "x")]}))
    assert result.message == "NRT_EXEC on nd 3 (and 2 more); expected no error"
