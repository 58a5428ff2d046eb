"""Where a kernel record begins: only its first line is the kernel's own, and none hides another."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from clusterproof.plugins.evidence.kernel_log import facts
from clusterproof.plugins.evidence.kernel_log import parse as kernel_log
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from clusterproof.plugins.evidence.parsing import CaptureError
from tests.evidence.kernel_log.logged import log
from tests.testbed.needs import needs_root

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
        lines = log(text)["lines"]
    except CaptureError:
        return []
    return [event.code for event in facts.parse(facts.lines(lines)) if isinstance(event, XidEvent)]


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


def test_a_programs_line_is_no_part_of_the_drivers_record_before_it() -> None:
    driver = f"Oct 14 14:56:49 gpu001 kernel: {SHORT}"
    collected = log(f"{driver}, pid=1, name=x\nOct 14 14:56:50 gpu001 kernel[4321]: {SHORT}\n")
    assert [line[1] for line in collected["lines"]] == [f"{SHORT}, pid=1, name=x"]


def test_the_driver_may_speak_twice_in_a_microsecond_and_a_boot_all_at_once() -> None:
    assert codes(f"[   12.500000] {SHORT}\n[   12.500000] {SHORT.replace('79', '48')}\n") == [79, 48]
    collected: Any = kernel_log.read(
        "[    0.000000] Linux version 6.8.0-1021-aws (x)\n[    0.000000] DMI: Amazon EC2 p5.48xlarge/, BIOS 1.0\n"
    )
    assert collected["platform"]["product"] == "p5.48xlarge"


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
