"""Saved kernel logs parsed into the probe's collector, and captured logs parsed into events."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log import parse as kernel_log
from clusterproof.plugins.evidence.kernel_log.events_gpu import Cleared, FallenOffBus, SXidEvent, XidEvent
from clusterproof.plugins.evidence.kernel_log.events_host import Logged
from clusterproof.plugins.evidence.parsing import CaptureError
from tests.builders.samples import Sample, of_topic, sample
from tests.evidence.kernel_log.logged import log
from tests.evidence.kernel_log.xid_lines import evaluate, evaluate_switches, parse
from tests.faults.captured_fault import evaluated
from tests.testbed.outputs import dmesg

XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=77, name=python3, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (f"[   12.500000] {XID}\n", 12.5),
        (f"4,1227,12500000,-;{XID}\n", 12.5),
        (f"[Fri Oct 14 14:56:49 2022] {XID}\n", 1665759409.0),
        (f"[Mi Okt 14 14:56:49 2022] {XID}\n", None),
        (f"[日 10月  4 14:56:49 2022] {XID}\n", None),
        (f"kern: warning: [2022-10-14T14:56:49.500000000Z]: {XID}\n", 1665759409.5),
        (f"Oct 14 14:56:49 gpu001 kernel: {XID}\n", None),
        (f"Oct 14 14:56:49.500000 gpu001 kernel: {XID}\n", None),
        (f"Fri 2022-10-14 14:56:49 UTC gpu001 kernel: {XID}\n", 1665759409.0),
        (f"2022-10-14T14:56:49.500000+0000 gpu001 kernel: {XID}\n", 1665759409.5),
        (f"2022-10-14 14:56:49 node kernel: {XID}\n", 1665759409.0),
        (f"1665759409.500000 gpu001 kernel: {XID}\n", 1665759409.5),
        (f"-- Logs begin at Fri 2022-10-14. --\nOct 14 14:56:49 gpu001 kernel: {XID}\n", None),
        (f"févr. 04 14:56:49 gpu001 kernel: {XID}\n", None),
        (f"11月 14 14:56:49 gpu001 kernel: {XID}\n", None),
        (f"{XID}\n", None),
    ],
)
def test_a_line_is_read_with_the_time_that_it_has(text: str, seconds: float | None) -> None:
    assert kernel_log.is_kernel_log(text)
    assert log(text)["lines"] == [[seconds, XID]]


@pytest.mark.parametrize(
    ("begins", "level"),
    [
        ("<3>[   12.500000] ", [0, 3]),
        ("3,1227,12500000,-;", [0, 3]),
        ("kern  :err   : [   12.500000] ", [0, 3]),
        ("kern  :emerg : [   12.500000] ", [0, 0]),
        ("<6>[   12.500000] ", []),
        ("kern  :info  : [   12.500000] ", []),
        ("[   12.500000] ", []),
    ],
)
def test_an_error_is_read_with_the_level_that_its_line_shows(begins: str, level: list[int]) -> None:
    assert log(f"{begins}{XID}\n")["lines"] == [[12.5, XID, *level]]


def test_a_log_from_the_boot_on_is_whole_and_another_is_not() -> None:
    assert (log(dmesg())["truncated"], log(dmesg())["whole_from"]) == (False, 0.0)
    later = log(f"[  900.000000] {XID}\n")
    assert (later["truncated"], later["whole_from"]) == (True, 900.0)
    assert log(f"{XID}\n")["whole_from"] is None
    for begins in ("[Fri Oct 14 14:56:49 2022] ", "2022-10-14T14:56:49+0000 gpu001 kernel: "):
        assert not log(f"{begins}Linux version 6.8.0-1021-aws (x)\n{begins}a\n")["truncated"]
    assert log(f"[    0.043437] {XID}\n")["truncated"]  # an excerpt, which does not begin with the kernel's version


def test_what_was_before_the_last_boot_is_left_out() -> None:
    collected = log(f"[  900.000000] {XID}\n{dmesg()}")
    assert XID not in [line[1] for line in collected["lines"]]
    assert not collected["truncated"]


def test_what_a_program_wrote_into_the_log_is_not_the_kernels_word() -> None:
    assert log(f"6,1,100,-;x\n12,1227,12500000,-;{XID}\n")["lines"] == []


def test_a_boot_names_the_machine() -> None:
    collected: Any = kernel_log.read(dmesg())
    assert collected["platform"] == {"vendor": "Amazon EC2", "product": "p5.48xlarge"}
    assert collected["boot"] == {"kernel": "6.8.0-1021-aws"}


def test_many_lines_alike_lose_none_of_their_number() -> None:
    collected = log(sample("kernel-log/gpud-dmesg-decode-iso-0.txt").text)
    events = facts.parse(facts.lines(collected["lines"]))
    assert len(collected["lines"]) < 100
    assert sum(event.lines for event in events if isinstance(event, XidEvent) and event.code == 13) == 629


# Lines that any user can cause: the kernel's complaint about a file system's options repeats them, newlines included

SHORT = "NVRM: Xid (PCI:0000:c5:00): 79"
PROGRAMS = "Oct 14 14:56:48 gpu001 systemd[1]: Started Session 7 of user me.\nOct 14 14:56:48 gpu001 sudo: a\n"
KERNELS = f"Oct 14 14:56:49 gpu001 kernel: {SHORT}\n"


def test_of_a_log_of_all_programs_only_the_kernels_lines_are_read() -> None:
    further = "Oct 14 14:56:50 gpu001 python[7]: words\n" + " " * 30 + f"{SHORT.replace('79', '48')}\n"
    text = f"{PROGRAMS}{KERNELS}{further}{PROGRAMS}"
    assert kernel_log.is_of_all_programs(text)
    assert not kernel_log.is_kernel_log(text)
    assert not kernel_log.is_of_all_programs(PROGRAMS)
    collected: Any = kernel_log.read_of_all_programs(text)
    assert [line[1] for line in collected["kernel_log"]["lines"]] == [SHORT]


@pytest.mark.parametrize(
    ("files", "check", "message"),
    [
        ({"syslog": f"{PROGRAMS}{KERNELS}{PROGRAMS}"}, "gpu.no_xid", "concern: Xid 79 (GPU has fallen off the bus)"),
        (
            {"syslog": PROGRAMS + KERNELS.replace(SHORT, "Linux version 6.8.0-1021-aws (x)")},
            "gpu.no_xid",
            "part of the kernel log was overwritten",
        ),
        (
            {"syslog": PROGRAMS + KERNELS.replace(SHORT, "Kernel panic - not syncing: x")},
            "host.kernel_oops",
            "concern: the kernel stopped: x",
        ),
    ],
)
def test_a_log_into_which_all_programs_write_fails_no_node_and_proves_nothing(
    files: dict[str, str], check: str, message: str
) -> None:
    result = evaluated(files)[check]
    assert result.verdict is Verdict.INCOMPLETE
    assert message in result.message


BOOT = "Linux version 6.8.0-1021-aws (x)"
DATES = ("Oct 14 14:56:48 ", "2022-10-14T14:56:48.123456+00:00 ", "2022-10-14T14:56:48+0000 ", "[   12.500000] ")


def of_kernel(text: str) -> list[str]:
    return [form.name for form in kernel_log.FORMS if form.recognises(text)]


@pytest.mark.any_user
@pytest.mark.parametrize("date", DATES)
@pytest.mark.parametrize("kernels", [1, 30, 600])
@pytest.mark.parametrize("others", ["sshd[77]: hello", "systemd[1]: Started a.", "kernel[7]: a"])
def test_one_program_among_the_kernels_lines_makes_it_a_log_of_all(date: str, kernels: int, others: str) -> None:
    own = f"{date}gpu001 kernel: usb 1-1: new device\n" * kernels
    text = f"{own}{date}gpu001 {others}\n{date}gpu001 kernel: {SHORT}\n{date}gpu001 kernel: {BOOT}\n"
    assert of_kernel(text) == ["journalctl, syslog"]
    with pytest.raises(CaptureError, match="programs have lines far down in it"):
        kernel_log.read_of_kernel_alone(text)
    for read in (kernel_log.read, kernel_log.read_of_all_programs):
        collected: Any = read(text)
        assert SHORT in [line[1] for line in collected["kernel_log"]["lines"]]
        assert (collected["kernel_log"]["source"], set(collected)) == (facts.OF_ALL_PROGRAMS, {"kernel_log"})


@pytest.mark.parametrize("date", DATES)
def test_what_systemd_says_before_there_is_a_journal_is_in_the_kernels(date: str) -> None:
    own = f"{date}gpu001 kernel: {BOOT}\n{date}gpu001 systemd[1]: Inserted module 'a'\n"
    text = f"{own}{date}gpu001 systemd-journald[500]: Received a request\n{date}gpu001 kernel: {SHORT}\n" * 2
    assert of_kernel(text) == ["dmesg"]
    collected: Any = kernel_log.read(text)
    assert (collected["kernel_log"]["source"], collected["kernel_log"]["truncated"]) == ("capture", date == DATES[3])


X_SERVER = "[   12.500] \nX.Org X Server 1.21.1\n" + "".join(
    f"[   12.50{number}] ({kind}) a\n" for number, kind in enumerate(("==", "**", "II", "--", "++", "WW", "EE", "NI"))
)


@pytest.mark.any_user
def test_the_log_of_an_x_server_is_none_of_the_kernels_whatever_stands_in_it() -> None:
    assert of_kernel(f"{X_SERVER}[   12.600] {SHORT}\n") == []


def test_the_log_of_an_x_server_beside_the_kernels_takes_nothing_from_it() -> None:
    files = {"dmesg": dmesg(), "Xorg.0.log": X_SERVER}
    assert evaluated(files)["gpu.no_xid"].verdict is Verdict.PASS


@pytest.mark.any_user
def test_a_process_that_is_called_like_a_host_makes_dmesg_no_log_of_all() -> None:
    names = ("a kernel: x[77]: segfault", "a sshd: x[77]: segfault", "a sshd[1]: x[77]: segfault")
    lines = ("a: b", "c: d", "e: f", "g: h", *names, SHORT)
    assert of_kernel("".join(f"[   12.500000] {line}\n" for line in lines)) == ["dmesg"]


def test_the_kernels_own_log_outranks_that_of_all_programs() -> None:
    files = {"dmesg.txt": dmesg(), "syslog": f"{PROGRAMS}{KERNELS}{PROGRAMS}"}
    assert evaluated(files)["gpu.no_xid"].verdict is Verdict.PASS


# Xids by code in every capture that has any.
CAPTURED = {
    "datadog-xid-formats.txt": {
        31: 3, 43: 2, 48: 1, 63: 2, 64: 3, 79: 1, 92: 2, 94: 1, 95: 1, 120: 1, 140: 2, 145: 2, 146: 1, 147: 1,
        148: 1, 149: 2, 154: 1, 156: 2, 157: 2, 160: 3, 161: 2, 171: 1, 172: 1, 177: 1, 999: 1,
    },
    "dcgm-kmsg-tests.txt": {43: 1, 79: 1, 119: 2},
    "gcm-dmesg-T.txt": {31: 2, 48: 1},
    "gpud-dmesg-decode-iso-0.txt": {13: 629, 43: 7},
    "gpud-dmesg-tail-0.txt": {48: 1, 63: 1, 94: 9},
    "gpud-xid-component.txt": {31: 5, 63: 4, 64: 3, 79: 2, 94: 1, 102: 1},
    "gpud-xid-health.txt": {144: 2, 145: 9, 149: 5, 150: 1},
    "gpud-xid-misc.txt": {14: 2, 79: 4, 149: 5, 154: 4, 99999: 1},
    "gpud-xid-nvlink5-145-149-real.txt": {144: 2, 145: 9, 149: 8},
    "nvidia-driver-source-xid-forms.txt": {94: 2, 95: 1},
    "nvsentinel-020-nvsentinel-gpu-reset.txt": {48: 1},
    "nvsentinel-024-workflow-nvlink-err.txt": {74: 1},
    "nvsentinel-xid-csv.txt": {8: 1, 13: 2, 32: 1, 46: 1, 69: 1, 74: 1, 145: 1, 149: 1, 154: 1, 999: 1},
    "nvsentinel-xid-handler.txt": {79: 1, 145: 2},
}  # fmt: skip


@pytest.mark.parametrize("sample", of_topic("kernel-log"))
def test_every_xid_of_a_capture_is_read_and_nothing_else(sample: Sample) -> None:
    events = parse(*sample.lines)
    codes = Counter(event.code for event in events if isinstance(event, XidEvent))
    assert codes == CAPTURED.get(sample.name, {})
    assert not [event for event in events if isinstance(event, SXidEvent)]


@pytest.mark.parametrize("sample", of_topic("kernel-log", lambda capture: capture.name not in CAPTURED))
def test_a_capture_without_an_xid_gives_no_finding(sample: Sample) -> None:
    events = parse(*sample.lines)
    assert evaluate(events) == evaluate_switches(events) == ()


@pytest.mark.parametrize("sample", of_topic("kernel-log", lambda capture: capture.is_healthy))
def test_a_healthy_capture_has_no_event_but_its_boot(sample: Sample) -> None:
    events = parse(*sample.lines)
    assert {type(event) for event in events} <= {Cleared, Logged}
    assert not [event for event in events if isinstance(event, Logged) and log_forms()[event.form].check]


@pytest.mark.parametrize("sample", of_topic("kernel-log"))
def test_a_capture_gives_the_same_in_every_wrapping(sample: Sample) -> None:
    codes = [event.code for event in parse(*sample.lines) if isinstance(event, XidEvent)]
    wrapped = parse(*(f"[ 4242.000001] gpu001 kernel: {line}" for line in sample.lines))
    assert [event.code for event in wrapped if isinstance(event, XidEvent)] == codes


def test_gpus_that_fell_off_the_bus_without_an_xid_are_in_the_captures() -> None:
    events = parse(*sample("kernel-log/gpud-xid-misc.txt").lines)
    lost = [event.pci for event in events if isinstance(event, FallenOffBus)]
    assert lost == ["0000:18:00.0", "0000:29:00.0", "0000:18:00.0", ""]
