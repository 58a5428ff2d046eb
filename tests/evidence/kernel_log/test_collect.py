"""This boot's kernel log is read completely, or is reported as incomplete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Node as ProbedNode
from clusterproof.plugins.evidence.kernel_log import collect as collector
from clusterproof.plugins.evidence.kernel_log import facts as kernel_log
from clusterproof.plugins.evidence.kernel_log.events_gpu import XidEvent
from tests.builders.probed import PATIENT, collect, value
from tests.evidence.kernel_log.logged import without_kmsg
from tests.evidence.kernel_log.xid_lines import evaluate
from tests.testbed.image import ABSENT
from tests.testbed.needs import needs_nodes
from tests.testbed.node import (
    healthy_cpu,
    with_file,
    with_tool,
)

BOOT_ID = "3f1c9a52-6d0e-4b77-9c1d-5a2e8f704b16"  # every fake node's
DENIED = "#!/bin/sh\necho dmesg: read kernel buffer failed: Operation not permitted >&2\nexit 1\n"


@needs_nodes
def test_the_kernels_own_records_are_kept_and_those_of_programs_are_not() -> None:
    log = (
        "6,0,100,-;Linux version 6.8.0\n"
        "3,1,2000000,-;NVRM: Xid (PCI:0000:c5:00): 48, pid=12, name=a\\x20b\\x5c, caf\\xc3\\xa9 \\xff\n"
        " SUBSYSTEM=pci\n DEVICE=NVRM: no record\n"
        "11,2,3000000,-;health[9]: saw NVRM: Xid (PCI:0000:c5:00): 79\n"
        "6,3,3500000,-,caller=T1;usb 1-1: default device\n"
        "4,4,4000000,c;Out of memory: Killed process 7 (python3)\n"
        "not a record\n"
        "3,5,5000000,-;NVRM: cut"
    )
    collected = value(with_file(healthy_cpu(), "/dev/kmsg", log), "kernel_log")
    assert collected.pop("cursor") == [BOOT_ID, 5, 5.0]
    assert collected == {
        "source": "/dev/kmsg",
        "lines": [
            [0.0001, "Linux version 6.8.0"],
            [2.0, "NVRM: Xid (PCI:0000:c5:00): 48, pid=12, name=a b\\, café \ufffd", 0, 3],
            [4.0, "Out of memory: Killed process 7 (python3)"],
            [5.0, "NVRM: cut", 0, 3],
        ],
        "read": 5,
        "dropped": 0,
        "uncounted": 0,
        "folded": {},
        "truncated": False,
        "whole_from": 0.0,
    }


@needs_nodes
@pytest.mark.parametrize(
    ("boot_id", "sequence", "seconds", "lines", "is_lost"),
    [
        ("this", 7, 30.0, ["NVRM: third"], False),
        ("this", 8, 40.0, [], False),
        ("this", 5, 10.0, ["NVRM: first", "NVRM: second", "NVRM: third"], False),
        ("this", 3, 5.0, ["NVRM: first", "NVRM: second", "NVRM: third"], True),
        ("another", 7, 30.0, ["NVRM: first", "NVRM: second", "NVRM: third"], True),
    ],
    ids=["some are new", "none is new", "all are new", "records between are lost", "of another boot"],
)
def test_after_a_cursor_only_new_lines_are_read(
    boot_id: str, sequence: int, seconds: float, lines: list[str], is_lost: bool
) -> None:
    log = "".join(
        f"3,{6 + at},{20 + 10 * at}000000,-;NVRM: {word}\n" for at, word in enumerate(["first", "second", "third"])
    )
    options = replace(PATIENT, log_cursor=(BOOT_ID if boot_id == "this" else boot_id, sequence, seconds))
    collected = value(
        with_tool(with_file(healthy_cpu(), "/dev/kmsg", log), "journalctl", DENIED), "kernel_log", options
    )
    assert [line[1] for line in collected["lines"]] == lines
    assert collected["truncated"] is is_lost
    assert collected["cursor"] == [BOOT_ID, 8, 40.0]


@needs_nodes
@pytest.mark.parametrize(
    ("seconds", "lines", "is_lost"), [(7100.0, ["NVRM: late"], False), (7050.0, ["NVRM: early", "NVRM: late"], True)]
)
def test_a_log_without_sequence_numbers_is_read_from_the_cursors_time_on(
    seconds: float, lines: list[str], is_lost: bool
) -> None:
    image = with_tool(with_file(healthy_cpu(), "/dev/kmsg", ABSENT), "journalctl", DENIED)
    image = with_tool(image, "dmesg", "#!/bin/sh\necho '[ 7100.0] NVRM: early'\necho '[ 7200.5] NVRM: late'\n")
    collected = value(image, "kernel_log", replace(PATIENT, log_cursor=(BOOT_ID, -1, seconds)))
    assert [line[1] for line in collected["lines"]] == lines
    assert (collected["truncated"], collected["cursor"]) == (is_lost, [BOOT_ID, -1, 7200.5])


FLOOD = 100_000


@needs_nodes
def test_a_flood_of_lines_stays_in_bounds_and_hides_no_other_line() -> None:
    xid = "3,{0},{0}000000,-;NVRM: Xid (PCI:0000:{1:02x}:00): 31, pid={0}, name=train\n"
    other = "6,{0},{0}000000,-;NVRM: number {0} {0:x}z\n"
    log = "".join(xid.format(n, n % 8) if n % 2 else other.format(n) for n in range(FLOOD))
    log += "3,9,999999000000,-;NVRM: Xid (PCI:0000:c5:00): 79, GPU has fallen off the bus.\n"
    collected = value(with_file(healthy_cpu(), "/dev/kmsg", log), "kernel_log")
    assert collected["read"] == FLOOD + 1
    assert collected["dropped"] == FLOOD + 1 - len(collected["lines"])
    assert len(collected["lines"]) < 40_000
    assert collected["lines"][-1] == [999999.0, "NVRM: Xid (PCI:0000:c5:00): 79, GPU has fallen off the bus.", 0, 3]
    for bus in (1, 3, 5, 7):
        hits = [line[0] for line in collected["lines"] if line[1].startswith(f"NVRM: Xid (PCI:0000:{bus:02x}:00): 31,")]
        assert len(hits) == 32
        assert (hits[0], hits[-1]) == (bus, FLOOD - 8 + bus)


STORM = 50_000
# One of each at the beginning, middle and end of a storm; all are kept.
HIDDEN = {
    1: "NVRM: Xid (PCI:0000:53:00): 79, GPU has fallen off the bus.",
    2: "Out of memory: Killed process 39 (python3) total-vm:1kB",
    STORM // 2: "NVRM: Xid (PCI:0000:64:00): 48, pid=7, name=train, Double Bit ECC Error",
    STORM // 2 + 1: "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    STORM - 2: "NVRM: Xid (PCI:0000:75:00): 119, Timeout after 6s of waiting for RPC response from GSP",
    STORM - 1: "nvidia 0000:53:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
}


@needs_nodes
def test_in_a_storm_every_fault_is_kept_and_evaluated() -> None:
    storm = (HIDDEN.get(n, f"NVRM: Xid (PCI:0000:{n % 16:02x}:00): 31, pid={n}, name=train") for n in range(STORM))
    log = "".join(f"3,{n},{n + 1}000000,-;{text}\n" for n, text in enumerate(storm))
    evidence = collect(with_file(healthy_cpu(), "/dev/kmsg", log), "kernel_log")
    collected = evidence.value
    assert len(collected["lines"]) < 2 * 16 * 16 + len(HIDDEN) + 1
    assert [line[:2] for line in collected["lines"] if line[1] in HIDDEN.values()] == [
        [n + 1.0, text] for n, text in HIDDEN.items()
    ]
    events = kernel_log.parse(kernel_log.lines(collected["lines"]))
    failing = {(finding.pci, finding.code) for finding in evaluate(events) if finding.severity == "fail"}
    assert failing == {("0000:53:00.0", 79), ("0000:64:00.0", 48), ("0000:75:00.0", 119)}
    assert sum(finding.count for finding in evaluate(events)) == STORM - 3


@needs_nodes
def test_two_boots_of_one_journal_are_told_apart() -> None:
    lines = {1: "Linux version 6.8.0", 900: HIDDEN[1], 0: "Linux version 6.8.0", 50: HIDDEN[2]}
    script = "".join(f"echo '[{at:5}.000000] gpu001.example.org kernel: {text}'\n" for at, text in lines.items())
    collected = value(with_tool(without_kmsg(), "journalctl", f"#!/bin/sh\n{script}"), "kernel_log")
    events = kernel_log.of_this_boot(kernel_log.parse(kernel_log.lines(collected["lines"])))
    assert [type(event).__name__ for event in events] == ["Cleared", "OomKill"]


@pytest.mark.parametrize(
    "reset",
    [
        ["NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.09"],
        ["nvidia-nvswitch0: Probing device 0000:08:00.0, Vendor Id = 0x10de, Device Id = 0x22a3"],
        [
            "[drm] [nvidia-drm] [GPU ID 0x00005300] Removing device",
            "[drm] Initialized nvidia-drm 0.0.0 20160202 for 0000:53:00.0 on minor 7",
        ],
    ],
    ids=["driver", "switches", "drm"],
)
@needs_nodes
def test_a_reset_in_the_log_clears_the_xid_before_it(reset: list[str]) -> None:
    xid = "NVRM: Xid (PCI:0000:53:00): 48, pid=7, name=train, Double Bit ECC Error"
    log = "".join(f"3,{at},{at * 1000},-;{text}\n" for at, text in enumerate([xid, *reset]))
    collected = value(with_file(healthy_cpu(), "/dev/kmsg", log), "kernel_log")
    (finding,) = evaluate(kernel_log.parse(kernel_log.lines(collected["lines"])))
    assert (finding.code, finding.severity, bool(finding.cleared_by)) == (48, "none", True)


@needs_nodes
def test_bytes_that_are_no_text_change_nothing_else_of_a_line() -> None:
    log = b"3,1,500000,-;NVRM: Xid (PCI:0000:53:00): 79, pid=7, name=\xff\xfe\x80, GPU has fallen off\n"
    collected = value(with_file(healthy_cpu(), "/dev/kmsg", log), "kernel_log")
    (event,) = kernel_log.parse(kernel_log.lines(collected["lines"]))
    assert isinstance(event, XidEvent)
    assert (event.code, event.pci, event.process) == (79, "0000:53:00.0", "\ufffd" * 3)


def test_records_that_are_overwritten_while_they_are_read_are_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kmsg").touch()
    begin, rest = b"6,0,0,-;Linux version 6.8\n", b"6,9,7000000,-;NVRM: x\n"
    records: Iterator[bytes | OSError] = iter([begin, BrokenPipeError(), rest, BlockingIOError()])

    def read(_log: int, _size: int) -> bytes:
        record = next(records)
        if isinstance(record, Exception):
            raise record
        return record

    monkeypatch.setattr("clusterproof.plugins.evidence.kernel_log.collect.os.read", read)
    collected = collector.read(ProbedNode(str(tmp_path)))
    monkeypatch.undo()
    assert isinstance(collected, dict)
    assert (collected["read"], collected["truncated"], collected["whole_from"]) == (2, True, 7.0)


@pytest.mark.long
def test_a_log_that_is_written_faster_than_it_is_read_says_what_was_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "kmsg").touch()
    monkeypatch.setattr(
        "clusterproof.plugins.evidence.kernel_log.collect.os.read", lambda _log, _size: b"3,1,500000,-;NVRM: x\n"
    )
    collected = collector.read(ProbedNode(str(tmp_path), collector_s=0.5))
    monkeypatch.undo()
    assert isinstance(collected, dict)
    assert collected["lines"][0] == [0.5, "NVRM: x", 0, 3]
    assert (collected["unfinished"], collected["truncated"], collected["whole_from"]) == (True, True, None)
