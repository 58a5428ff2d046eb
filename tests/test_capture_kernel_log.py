"""The kernel log as people save it, read into the leaf of the probe."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.capture import kernel_log
from clusterproof.plugins.facts import kernel_log as facts
from clusterproof.plugins.facts.kernel_log import XidEvent
from tests.samples import sample
from tests.testbed.outputs import dmesg

XID = "NVRM: Xid (PCI:0000:c5:00): 79, pid=77, name=python3, GPU has fallen off the bus."


def log(text: str) -> dict[str, Any]:
    told: Any = kernel_log.read(text)
    return dict(told["kernel_log"])


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (f"[   12.500000] {XID}\n", 12.5),
        (f"4,1227,12500000,-;{XID}\n", 12.5),
        (f"[Fri Oct 14 14:56:49 2022] {XID}\n", 1665759409.0),
        (f"Oct 14 14:56:49 gpu001 kernel: {XID}\n", None),
        (f"{XID}\n", None),
    ],
)
def test_a_line_is_told_with_the_time_that_it_has(text: str, seconds: float | None) -> None:
    assert kernel_log.is_kernel_log(text)
    assert log(text)["lines"] == [[seconds, XID]]


def test_a_log_from_the_boot_on_is_whole_and_another_is_not() -> None:
    assert (log(dmesg())["truncated"], log(dmesg())["whole_from"]) == (False, 0.0)
    later = log(f"[  900.000000] {XID}\n")
    assert (later["truncated"], later["whole_from"]) == (True, 900.0)
    assert log(f"{XID}\n")["whole_from"] is None


def test_what_was_before_the_last_boot_is_left_out() -> None:
    told = log(f"[  900.000000] {XID}\n{dmesg()}")
    assert XID not in [line[1] for line in told["lines"]]
    assert not told["truncated"]


def test_what_a_program_wrote_into_the_log_is_not_the_kernels_word() -> None:
    assert log(f"6,1,100,-;x\n12,1227,12500000,-;{XID}\n")["lines"] == []


def test_a_boot_names_the_machine() -> None:
    told: Any = kernel_log.read(dmesg())
    assert told["platform"] == {"vendor": "Amazon EC2", "product": "p5.48xlarge"}
    assert told["boot"] == {"kernel": "6.8.0-1021-aws"}


def test_many_lines_alike_lose_none_of_their_number() -> None:
    told = log(sample("kernel-log/gpud-dmesg-decode-iso-0.txt").text)
    events = facts.parse(facts.lines(told["lines"]))
    assert len(told["lines"]) < 100
    assert sum(event.lines for event in events if isinstance(event, XidEvent) and event.code == 13) == 629
