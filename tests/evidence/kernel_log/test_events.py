"""Xid lines in every form, parsed into events; what only looks like one is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.events_gpu import LONGEST_TEXT, XidEvent
from clusterproof.plugins.evidence.kernel_log.line import pci_address
from tests.evidence.kernel_log.xid_lines import line_of, parse


def parsed(line: str) -> XidEvent:
    (event,) = parse(line)
    assert isinstance(event, XidEvent)
    return event


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
    assert parsed(line_of(79, "x" * 100_000)).text == "x" * LONGEST_TEXT


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
