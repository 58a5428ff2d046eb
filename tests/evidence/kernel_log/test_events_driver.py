"""What the NVIDIA driver logs besides Xids: SXids, GPUs that fell off the bus or did not start, and its loads."""

from __future__ import annotations

import pytest

from clusterproof.plugins.evidence.kernel_log.events_gpu import FallenOffBus, GpuNamed, SXidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import Logged
from tests.evidence.kernel_log.logged import node, result
from tests.evidence.kernel_log.xid_lines import GPU, evaluate, line_of, parse


def test_an_sxid_is_known_by_its_head_line_not_by_its_data() -> None:
    head = "nvidia-nvswitch3: SXid (PCI:0000:c8:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"
    events = parse(
        head,
        "nvidia-nvswitch3: SXid (PCI:0000:c8:00.0): 20034, Severity 1 Engine instance 28",
        "nvidia-nvswitch3: SXid (PCI:0000:c8:00.0): 20034, Data {0x50610002, 0x10100030}",
        "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): xyz, Fatal error",
        "nvidia-nvswitch0: SXid (invalid): some error",
    )
    assert events == (SXidEvent(20034, "0000:c8:00.0", None, "Fatal, Link 28 LTSSM Fault Up", "fatal", 28),)
    assert evaluate(events) == ()


FELL = "NVRM: fallen off the bus and is not responding to commands."


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        (["NVRM: The NVIDIA GPU 0000:18:00.0", "NVRM: (PCI ID: 10de:2901) installed", FELL], "0000:18:00.0"),
        (
            [f"[ 1843.3] NVRM: The NVIDIA GPU 0000:b3:00.0\n    NVRM: installed in\n    {FELL}"],
            "0000:b3:00.0",
        ),
        (["NVRM: The NVIDIA GPU 0000:05:00.0 installed in this has fallen off the bus"], "0000:05:00.0"),
        (["NVRM: GPU 0000:29:00.0: GPU has fallen off the bus."], "0000:29:00.0"),
        (["NVRM: The NVIDIA GPU 0000:18:00.0 is not supported", "NVRM: something else", FELL], ""),
        (["NVRM: The NVIDIA GPU 0000:18:00.0", "nvme nvme1: I/O 5 QID 2 timeout, aborting", FELL], "0000:18:00.0"),
        (["NVRM: The NVIDIA GPU 0000:18:00.0", "a line that no form knows", FELL], "0000:18:00.0"),
        (["[10.5] NVRM: The NVIDIA GPU 0000:18:00.0 is not supported", f"[99.5] {FELL}"], ""),
    ],
)
def test_a_gpu_that_fell_off_the_bus_without_an_xid_is_named(lines: list[str], address: str) -> None:
    events = parse(*lines)
    assert [event.pci for event in events if isinstance(event, FallenOffBus)] == [address]
    assert [(finding.code, finding.severity, finding.pci) for finding in evaluate(events)] == [(79, "fail", address)]


def test_two_gpus_that_fell_off_the_bus_at_once_are_both_named() -> None:
    events = parse("NVRM: The NVIDIA GPU 0000:18:00.0", line_of(63), "NVRM: The NVIDIA GPU 0000:5d:00.0", FELL, FELL)
    lost = [finding.pci for finding in evaluate(events) if finding.code == 79]
    assert lost == ["0000:18:00.0", "0000:5d:00.0"]


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0x56:1463)", "0000:c1:00.0"),
        ("NVRM: GPU 0000:c1:00.0: rm_init_adapter failed, device minor number 3", "0000:c1:00.0"),
        ("[   99.500000] NVRM: RmInitAdapter failed! (0x25:0x40:1220)", ""),
        ("3,1204,99500000,-;NVRM: rm_init_adapter failed, device minor number 0", ""),
    ],
)
def test_a_gpu_that_the_driver_could_not_start_is_evaluated_as_the_xid_for_that(line: str, address: str) -> None:
    assert [(xid.code, xid.severity, xid.pci) for xid in evaluate(parse(line))] == [(143, "fail", address)]


@pytest.mark.parametrize(
    "line",
    [
        "[99.5] x NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
        "[99.5] process 'RmInitAdapter failed' started with executable stack",
        "[99.5] NVRM: GPU of RmInitAdapter failed",
        "[99.5] overlayfs: upperdir is NVRM: RmInitAdapter failed!",
        "[99.5] overlayfs: x\nNVRM: RmInitAdapter failed!",
        "python[77]: NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0x56:1463)",
    ],
)
def test_what_only_names_such_a_failure_is_none(line: str) -> None:
    assert parse(line) == ()


@pytest.mark.parametrize(
    ("answers", "after", "severity"),
    [
        ({"0000:c1:00.0": "GPU-1"}, [], "none"),
        ({}, ["[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:c1:00.0 on minor 7"], "none"),
        ({}, [], "fail"),
        ({}, ["nvidia-nvswitch0: Probing device 0000:08:00.0, Vendor Id = 0x10de, Device Id = 0x22a3"], "fail"),
        (
            {"0000:c2:00.0": "GPU-2"},
            ["[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:c2:00.0 on minor 7"],
            "fail",
        ),
    ],
)
def test_a_gpu_that_did_not_start_is_well_where_it_answers_after_the_driver_was_loaded_again(
    answers: dict[str, str], after: list[str], severity: str
) -> None:
    failed = "NVRM: GPU 0000:c1:00.0: RmInitAdapter failed! (0x26:0x56:1463)"
    events = parse(failed, "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09", *after)
    (finding,) = evaluate(events, uuids=answers)
    assert (finding.severity, finding.cleared_by) == (severity, "a reload of the driver" if severity == "none" else "")


@pytest.mark.parametrize("since", [line_of(48), line_of(79), "NVRM: GPU 0000:c5:00.0: GPU has fallen off the bus."])
def test_a_module_that_is_loaded_later_than_the_driver_ends_no_error_since(since: str) -> None:
    loaded = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09"
    module = "[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:c5:00.0 on minor 7"
    (finding,) = evaluate(parse(loaded, since, module))
    assert (finding.severity, finding.cleared_by) == ("fail", "")
    (finding,) = evaluate(parse(since, loaded, module))
    assert finding.severity == "none"


NUMBERED = (
    "NVRM: GPU6 _kgspLogRpcTimeout: ********************************* GSP Timeout **********************************"
)


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        (["0000:a1:00"], ["0000:a1:00.0"]),
        (["0000:a1:00", "0000:a1:00"], ["0000:a1:00.0"]),
        (["0000:a1:00", "0000:c5:00"], ["GPU6"]),  # as after another order of starting
        ([], ["GPU6"]),
    ],
)
def test_the_driver_s_own_number_of_a_gpu_is_of_the_address_in_its_xid(gpus: list[str], devices: list[str]) -> None:
    text = "Timeout after 6s of waiting for RPC response from GPU6 GSP! Expected function 76 (GSP_RM_CONTROL)."
    events = parse(NUMBERED, *(line_of(119, text, gpu) for gpu in gpus))
    assert [event.device for event in events if isinstance(event, Logged)] == devices


def test_the_driver_s_own_number_is_not_taken_for_nvidia_smi_s() -> None:
    assert result("gpu.no_xid", node((1.0, NUMBERED))).message.startswith("the driver's GPU6: its GSP firmware")


PROBE_FAILED = (  # in the driver's order
    "nvidia: probe of 0000:5d:00.0 failed with error -1",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
)
LOADED = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03"
LOST = ("NVRM: The NVIDIA GPU 0000:5d:00.0", "NVRM: fallen off the bus and is not responding to commands.")


@pytest.mark.parametrize("answers", [{}, {"0000:18:00.0": "GPU-1"}])
@pytest.mark.parametrize("line", [line_of(48, gpu="0000:5d:00"), *LOST[1:], line_of(79, gpu="0000:5d:00")])
def test_a_load_line_after_a_probe_that_failed_is_of_the_same_load_and_no_restart(
    line: str, answers: dict[str, str]
) -> None:
    events = parse(LOST[0], line, *PROBE_FAILED, LOADED)
    assert [finding.severity for finding in evaluate(events, uuids=answers)] == ["fail"]


def test_what_was_logged_before_a_probe_that_failed_is_over_for_the_gpus_that_answer() -> None:
    events = parse(line_of(48), *LOST, *PROBE_FAILED, LOADED)
    severities = {finding.code: finding.severity for finding in evaluate(events, uuids={GPU: "GPU-1"})}
    assert severities == {48: "none", 79: "fail"}
    later = evaluate(parse(line_of(48), *LOST, *PROBE_FAILED, LOADED, LOADED), uuids={})
    assert {finding.code: finding.severity for finding in later} == {48: "none", 79: "fail"}


def test_the_driver_logs_the_uuid_of_a_gpu_before_its_first_xid() -> None:
    events = parse("NVRM: GPU at PCI:0000:c5:00: GPU-455d8f70-2051-db6c-0430-ffc457bff834", line_of(79))
    assert events[0] == GpuNamed("0000:c5:00.0", "GPU-455d8f70-2051-db6c-0430-ffc457bff834")
    assert [finding.uuid for finding in evaluate(events)] == ["GPU-455d8f70-2051-db6c-0430-ffc457bff834"]
    assert [finding.uuid for finding in evaluate(events, uuids={"00000000:C5:00.0": "GPU-1"})] == ["GPU-1"]
    assert [finding.uuid for finding in evaluate(events, uuids={"0000:c5:00.0": ""})] == [events[0].uuid]
