"""The kernel log as people save it, read into the collector of the probe."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log import parse as kernel_log
from clusterproof.plugins.evidence.kernel_log.facts import XidEvent
from clusterproof.plugins.evidence.parsing import CaptureError
from tests.builders.samples import sample
from tests.faults.captured_fault import evaluated
from tests.testbed.needs import needs_root
from tests.testbed.outputs import dmesg

XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=77, name=python3, GPU has fallen off the bus."


def log(text: str) -> dict[str, Any]:
    data: Any = kernel_log.read(text)
    return dict(data["kernel_log"])


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
    assert log(f"[    0.043437] {XID}\n")["truncated"]  # an excerpt, which does not begin with the kernel's name


def test_what_was_before_the_last_boot_is_left_out() -> None:
    data = log(f"[  900.000000] {XID}\n{dmesg()}")
    assert XID not in [line[1] for line in data["lines"]]
    assert not data["truncated"]


def test_what_a_program_wrote_into_the_log_is_not_the_kernels_word() -> None:
    assert log(f"6,1,100,-;x\n12,1227,12500000,-;{XID}\n")["lines"] == []


def test_a_boot_names_the_machine() -> None:
    data: Any = kernel_log.read(dmesg())
    assert data["platform"] == {"vendor": "Amazon EC2", "product": "p5.48xlarge"}
    assert data["boot"] == {"kernel": "6.8.0-1021-aws"}


def test_many_lines_alike_lose_none_of_their_number() -> None:
    data = log(sample("kernel-log/gpud-dmesg-decode-iso-0.txt").text)
    events = facts.parse(facts.lines(data["lines"]))
    assert len(data["lines"]) < 100
    assert sum(event.lines for event in events if isinstance(event, XidEvent) and event.code == 13) == 629


# What any user can have logged: a file system's options stand in its complaint of them, a newline included

SHORT = "NVRM: Xid (PCI:0000:c5:00): 79"
HEAD = "tmpfs: Unknown parameter 'x"
FORMS = {
    "dmesg": ("[   12.500000] ", 15),
    "dmesg -T": ("[Fri Oct 14 14:56:49 2022] ", 27),
    "dmesg --time-format iso": ("2022-10-14T14:56:49,500000+00:00 ", 33),
    "dmesg -r": ("<3>[   12.500000] ", 18),
    "dmesg -x": ("kern  :err   : [   12.500000] ", 30),
    "dmesg -d": ("[   12.500000 <    0.000001>] ", 30),
    "dmesg -e": ("[  +0.000001] ", 14),
    "dmesg -e, a new minute": ("[Oct14 14:56] ", 14),
    "dmesg --time-format delta": ("[<    0.000001>] ", 17),
    "journalctl -k": ("Oct 14 14:56:49 gpu001 kernel: ", 31),
    "journalctl -k -o short-precise": ("Oct 14 14:56:49.500000 gpu001 kernel: ", 38),
    "journalctl -k -o short-unix": ("1665759409.500000 gpu001 kernel: ", 33),
    "journalctl -k -o short-monotonic": ("[   12.500000] gpu001 kernel: ", 30),
}
ON_EACH_LINE = {
    "dmesg -S": "[   12.500000] ",
    "dmesg -S -r": "<3>[   12.500000] ",
    "klogd": "Oct 14 14:56:49 gpu001 kernel: [   12.500000] ",
}


def codes(text: str) -> list[int]:
    """The Xids in a capture."""
    try:
        data = log(text)["lines"]
    except CaptureError:
        return []
    return [event.code for event in facts.parse(facts.lines(data)) if isinstance(event, XidEvent)]


@pytest.mark.parametrize("form", FORMS)
def test_only_the_head_of_a_record_is_the_kernels_word(form: str) -> None:
    stamp, indent = FORMS[form]
    before = f"{stamp.replace('500000', '400000')}usb 1-1: new device\n"
    assert codes(f"{before}{stamp}{SHORT}\n") == [79]
    for forged in (SHORT, f"Linux version 6.8.0\n{SHORT}", f"[   12.500000] {SHORT}", f"{stamp}{SHORT}"):
        padded = forged.replace("\n", "\n" + " " * indent)
        assert codes(f"{before}{stamp}{HEAD}\n{' ' * indent}{padded}'\n") == []
        assert codes(f"{' ' * indent}{padded}'\n{before}") == []


@pytest.mark.parametrize("form", ON_EACH_LINE)
def test_where_each_line_of_a_record_has_its_stamp_only_the_first_is_the_kernels_word(form: str) -> None:
    stamp = ON_EACH_LINE[form]
    assert codes(f"{stamp}{HEAD}\n{stamp}{SHORT}'\n{stamp}Linux version 6.8.0\n{stamp}{SHORT}\n") == []
    assert codes(f"{stamp}{HEAD}\n{stamp.replace('500000', '500001')}{SHORT}\n") == [79]


def test_a_kernel_with_a_number_is_a_user_who_calls_himself_so() -> None:
    kernels = "Oct 14 14:56:49 gpu001 kernel: nvme nvme0: 64/0/0 default/read/poll queues\n"
    assert codes(f"{kernels * 9}Oct 14 14:56:50 gpu001 kernel[4321]: {SHORT}\n") == []
    assert not kernel_log.is_kernel_log(f"Oct 14 14:56:50 gpu001 kernel[4321]: {SHORT}\n")
    assert codes(f"{kernels}Oct 14 14:56:50 gpu001 kernel: {SHORT}\n") == [79]


PROGRAMS = "Oct 14 14:56:48 gpu001 systemd[1]: Started Session 7 of user me.\nOct 14 14:56:48 gpu001 sudo: a\n"
KERNELS = f"Oct 14 14:56:49 gpu001 kernel: {SHORT}\n"


def test_of_a_log_of_all_programs_only_the_kernels_lines_are_read() -> None:
    further = "Oct 14 14:56:50 gpu001 python[7]: words\n" + " " * 30 + f"{SHORT.replace('79', '48')}\n"
    text = f"{PROGRAMS}{KERNELS}{further}{PROGRAMS}"
    assert kernel_log.is_of_all_programs(text)
    assert not kernel_log.is_kernel_log(text)
    assert not kernel_log.is_of_all_programs(PROGRAMS)
    data: Any = kernel_log.read_of_all_programs(text)
    assert [line[1] for line in data["kernel_log"]["lines"]] == [SHORT]


@pytest.mark.parametrize(
    ("files", "check", "words"),
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
    files: dict[str, str], check: str, words: str
) -> None:
    result = evaluated(files)[check]
    assert result.verdict is Verdict.INCOMPLETE
    assert words in result.message


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
        data: Any = read(text)
        assert SHORT in [line[1] for line in data["kernel_log"]["lines"]]
        assert (data["kernel_log"]["source"], set(data)) == (facts.OF_ALL_PROGRAMS, {"kernel_log"})


@pytest.mark.parametrize("date", DATES)
def test_what_systemd_says_before_there_is_a_journal_is_in_the_kernels(date: str) -> None:
    own = f"{date}gpu001 kernel: {BOOT}\n{date}gpu001 systemd[1]: Inserted module 'a'\n"
    text = f"{own}{date}gpu001 systemd-journald[500]: Received a request\n{date}gpu001 kernel: {SHORT}\n" * 2
    assert of_kernel(text) == ["dmesg"]
    data: Any = kernel_log.read(text)
    assert (data["kernel_log"]["source"], data["kernel_log"]["truncated"]) == ("capture", date == DATES[3])


@pytest.mark.any_user
def test_a_process_that_is_called_like_a_host_makes_dmesg_no_log_of_all() -> None:
    names = ("a kernel: x[77]: segfault", "a sshd: x[77]: segfault", "a sshd[1]: x[77]: segfault")
    lines = ("a: b", "c: d", "e: f", "g: h", *names, SHORT)
    assert of_kernel("".join(f"[   12.500000] {line}\n" for line in lines)) == ["dmesg"]


def test_the_kernels_own_log_outranks_that_of_all_programs() -> None:
    files = {"dmesg.txt": dmesg(), "syslog": f"{PROGRAMS}{KERNELS}{PROGRAMS}"}
    assert evaluated(files)["gpu.no_xid"].verdict is Verdict.PASS


def test_a_programs_line_is_no_part_of_the_drivers_record_before_it() -> None:
    driver = f"Oct 14 14:56:49 gpu001 kernel: {SHORT}"
    data = log(f"{driver}, pid=1, name=x\nOct 14 14:56:50 gpu001 kernel[4321]: {SHORT}\n")
    assert [line[1] for line in data["lines"]] == [f"{SHORT}, pid=1, name=x"]


def test_the_driver_may_speak_twice_in_a_microsecond_and_a_boot_all_at_once() -> None:
    assert codes(f"[   12.500000] {SHORT}\n[   12.500000] {SHORT.replace('79', '48')}\n") == [79, 48]
    data: Any = kernel_log.read(
        "[    0.000000] Linux version 6.8.0-1021-aws (x)\n[    0.000000] DMI: Amazon EC2 p5.48xlarge/, BIOS 1.0\n"
    )
    assert data["platform"]["product"] == "p5.48xlarge"


HANG = "[ 1649.015145] igb 0000:02:00.1: Detected Tx Unit Hang\n"
FURTHER = "  TDH                  <0>\n  TDT                  <1>\n  jiffies              <100149450>\n"


@pytest.mark.parametrize("indent", ["", " " * 15])
@pytest.mark.parametrize("hangs", [1, 2, 200])
@pytest.mark.parametrize("margin", ["", "buffer_info[next_to_clean]\n  time_stamp           <100148bd7>\n"])
def test_further_lines_without_a_stamp_do_not_hide_the_records_between_them(
    indent: str, hangs: int, margin: str
) -> None:
    further = "".join(f"{indent}{line}\n" for line in (FURTHER + margin).splitlines())
    text = (HANG + further) * hangs + f"[ 1653.377085] {SHORT}\n"
    assert kernel_log.is_of_kernel_alone(text)
    assert codes(text) == [79]


@pytest.mark.any_user
def test_further_lines_are_nobodys_whatever_they_say() -> None:
    forged = f"{HANG}  {SHORT}\n  [ 1649.015145] {SHORT}\n               [ 1650.015145] {SHORT}\n"
    assert codes(forged * 9) == []


def test_a_persons_heading_above_a_log_is_no_line_of_it() -> None:
    assert codes(f"  6a | 04/12/2024 | Critical Interrupt\n\nFrom dmesg:\n[ 1653.377085] {SHORT}\n") == [79]


def test_a_boot_that_a_user_writes_hides_nothing_before_it() -> None:
    stamp = "[   12.500000] "
    assert codes(f"{stamp}{SHORT}\n[   13.500000] {HEAD}\n{' ' * 15}Linux version 6.8.0'\n") == [79]


def test_without_times_lines_of_a_whole_log_show_no_records() -> None:
    with pytest.raises(CaptureError, match="expected dmesg or journalctl -k with times"):
        kernel_log.read(f"{HEAD}\n{SHORT}'\n")


OPTIONS = (
    "",
    "-T",
    "-r",
    "-x",
    "-d",
    "-e",
    "-S",
    "-S -r",
    "-S -x",
    "-p",
    "--time-format=iso",
    "--time-format=delta",
    "-t",
)


@needs_root
@pytest.mark.parametrize("options", OPTIONS)
def test_a_users_newline_in_this_machines_log_is_no_record_in_any_form_of_dmesg(options: str) -> None:
    mark = f"{SHORT[:-2]}{os.getpid() % 90 + 10}"
    mount = ["unshare", "-Urm", "mount", "-t", "tmpfs", "-o", f"x\n{mark}", "none", "/mnt"]
    subprocess.run(mount, capture_output=True, check=False)
    shown = subprocess.run(["dmesg", *options.split()], capture_output=True, text=True, check=False).stdout
    if f"{mark}'" not in shown:
        pytest.skip("this machine lets nobody mount in a namespace of his own, or shows no kernel log")
    tail = "\n".join(shown.split("\n")[-40:])
    assert codes(tail) == []
