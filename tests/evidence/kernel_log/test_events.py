"""Kernel log lines, parsed into events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.facts import (
    FallenOffBus,
    GpuNamed,
    Logged,
    SXidEvent,
    XidEvent,
    pci_address,
)
from tests.evidence.kernel_log.logged import node, result
from tests.evidence.kernel_log.xid_lines import GPU, evaluate, line_of, parse


def parsed(line: str) -> XidEvent:
    (event,) = parse(line)
    assert isinstance(event, XidEvent)
    return event


# Forms


@pytest.mark.parametrize(
    ("text", "event"),
    [
        (
            "(PCI:0000:2a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            XidEvent(79, "0000:2a:00.0", None, "GPU has fallen off the bus."),
        ),
        (
            "(PCI:0000:66:00): 32, pid=2280636, name=train.3, Channel ID 0000000d intr0 00040000",
            XidEvent(32, "0000:66:00.0", None, "Channel ID 0000000d intr0 00040000", 2280636, "train.3"),
        ),
        (
            "(PCI:0018:01:00): 145, pid=876767, name=ray::Worker, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)",
            XidEvent(
                code=145,
                pci="0018:01:00.0",
                time=None,
                text="RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)",
                pid=876767,
                process="ray::Worker",
                severity="nonfatal",
                link=13,
            ),
        ),
        (
            "(PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406",
            XidEvent(149, "0019:01:00.0", None, "NETIR Fatal XC0 i0 Link -1 (0x000fe406", severity="fatal"),
        ),
        (
            "(PCI:0003:00:00): 74, pid='`<unknown>`', name=`<unknown>`, NVLink: fatal error on link 14(0x0)",
            XidEvent(74, "0003:00:00.0", None, "NVLink: fatal error on link 14(0x0)", None, "", "fatal", 14),
        ),
        (
            "(PCI:0000:01:00 GPU-I:05): 94, pid=7, Contained",
            XidEvent(94, "0000:01:00.0", None, "Contained", 7),
        ),
        ("(0000:03:00): 14, Channel 00000001", XidEvent(14, "0000:03:00.0", None, "Channel 00000001")),
        ("(PCI:0000:3f:00): 46", XidEvent(46, "0000:3f:00.0", None, "")),
        (" ( pci:0000:00:1E.0 ) : 43, channel 0x1", XidEvent(43, "0000:00:1e.0", None, "channel 0x1")),
        ("(PCI:0000:01:00): 31, pid=XXX", XidEvent(31, "0000:01:00.0", None, "")),
        ("(PCI:xxxx:**:00): 48, DBE", XidEvent(48, "", None, "DBE")),  # its address was redacted
        ("(PCI:[redacted]): 48", XidEvent(48, "", None, "")),
    ],
)
def test_the_forms_of_an_xid_line(text: str, event: XidEvent) -> None:
    assert parsed(f"NVRM: Xid {text}") == event
    assert parsed(f"nvrm:  xid {text}") == event


@pytest.mark.parametrize(
    ("prefix", "time"),
    [
        ("", None),
        ("[...] ", None),
        ("[  171.620236] ", 171.620236),
        ("[171167.620236][ T4242] ", 171167.620236),
        ("<4>[   12.500000] ", 12.5),
        ("4,1227,437812449932,-;", 437812.449932),
        ("4,1227,437812449932,-,caller=T77;", 437812.449932),
        ("kern  :warn  : [   12.500000] ", 12.5),
        ("kern  :warn  : 2025-01-21T02:21:33,498559+00:00 ", 1737426093.498559),
        ("2024-11-15T12:02:03.470068Z ", 1731672123.470068),
        ("2024-11-15T12:02:03+0000 gpu001 kernel: ", 1731672123.0),
        ("[Fri Oct 14 14:56:49 2022] ", 1665759409.0),
        ("[Fri Oct  7 14:56:49 2022] ", 1665154609.0),
        ("[Fri Oct 99 14:56:49 2022] ", None),
        ("Oct 14 14:56:49 gpu001 kernel: ", None),
        ("Jan  3 07:39:45 ip-10-0-0-7 kernel: [17257.355375] ", 17257.355375),
        ("[   12.500000] gpu001.example.org kernel: ", 12.5),
        ("kernel: ", None),
    ],
)
def test_what_stands_before_the_kernels_words_is_taken_off(prefix: str, time: float | None) -> None:
    assert parsed(prefix + line_of(79)) == replace(parsed(line_of(79)), time=time)


@pytest.mark.parametrize("time", [float("inf"), float("-inf"), float("nan")])
def test_a_time_that_is_no_number_of_seconds_is_unknown(time: float) -> None:
    assert kernel_log.parse([(time, line_of(79))]) == parse(line_of(79))


def test_a_text_that_has_no_end_is_cut() -> None:
    assert parsed(line_of(79, "x" * 100_000)).text == "x" * kernel_log.LONGEST_TEXT


def test_the_time_that_the_probe_read_outranks_the_lines_own() -> None:
    (event,) = kernel_log.parse([(7.5, "[   12.500000] " + line_of(79))])
    assert event == replace(parsed(line_of(79)), time=7.5)


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:65:00): invalid",
        "NVRM: Xid (PCI:0000:65:00)",
        "NVRM: Xid: 31",
        "NVRM: Xid : 32, pid=2280636",
        "NVRM: Xid (invalid): 79, some error",
        "NVRM: Xid (PCI:0000:01:00): 154 (",
        "NVRM: Xid (PCI:0000:01:00): 0, nothing",
        "NVRM: Xid (PCI:0000:01:00): 99999999999999999999, too much",
        "NVRM: Xid (PCI:0000:01:00): -79, less than nothing",
        "NVRM: Xid PCI:0000:01:00: 43, pid=1814139",
        "NVRM: Xid error: xyz, invalid data",
        "NVRM: GPU at PCI:0000:66:00: 48, this is no Xid",
        "Xid=48 seen by the application",
        "Xid (PCI:0000:66:00): 48, not the driver's words",
        "python3[77]: NVRM: Xid (PCI:0000:66:00): 48, quoted",
        "Oct 14 14:56:49 gpu001 dcgm-exporter[9]: NVRM: Xid (PCI:0000:66:00): 48, quoted",
        "[   12.500000] gpu001 slurmd[9]: NVRM: Xid (PCI:0000:66:00): 48, quoted",
        "[   12.500000] systemd[1]: NVRM: Xid (PCI:0000:66:00): 48, quoted",
        "12,1227,437812449932,-;NVRM: Xid (PCI:0000:66:00): 48, a program wrote this to /dev/kmsg",
        "<14>NVRM: Xid (PCI:0000:66:00): 48, a program wrote this to /dev/kmsg",
        "user  :warn  : NVRM: Xid (PCI:0000:66:00): 48, a program wrote this to /dev/kmsg",
        "prolog kernel: NVRM: Xid (PCI:0000:66:00): 48, nobody's clock stands before it",
        "prolog: the log says\nNVRM: Xid (PCI:0000:66:00): 48, quoted",
        'portDbgPrintf("NVRM: Xid (" attr "): %d, %s%s\\n",',
        "[Dec 18 2024 19:09:50] [ERROR] [tid 1] detected NVSwitch fatal error 20034 on fid 0",
    ],
)
def test_what_only_looks_like_an_xid_is_no_event(line: str) -> None:
    assert parse(line) == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:c5:00", "0000:c5:00.0"),
        ("0000:C5:00.0", "0000:c5:00.0"),
        ("00000000:C5:00.0", "0000:c5:00.0"),
        ("c5:00.0", "0000:c5:00.0"),
        ("000d:00:00", "000d:00:00.0"),
        ("10000:01:00", "10000:01:00.0"),
        ("c5", ""),
        ("", ""),
        ("0000:c5:00.0; rm -rf", ""),
    ],
)
def test_an_address_is_written_as_sysfs_writes_it(text: str, address: str) -> None:
    assert pci_address(text) == address


# Other events


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
