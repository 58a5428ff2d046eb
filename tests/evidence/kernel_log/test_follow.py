"""The kernel log is followed record by record: what the kernel has overwritten before it was read is counted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterproof.plugins.agent.reading import Node
from clusterproof.plugins.evidence.kernel_log.collect import KMSG
from clusterproof.plugins.evidence.kernel_log.collect_follow import BOOT_ID, Follower

BOOT = "3f1c9a52"
Reads = list[bytes | type[OSError]]


def record(number: int) -> bytes:
    return f"4,{number},{number}000000,-;NVRM: Xid (PCI:0000:53:00): {number}, pid='<unknown>', it broke\n".encode()


def follower(root: Path, monkeypatch: pytest.MonkeyPatch, cursor: tuple[str, int, float], reads: Reads) -> Follower:
    """One of a device that gives these, one at a time."""
    for path in (BOOT_ID, KMSG):
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(BOOT if path == BOOT_ID else "")
    made, left = Follower(Node(str(root)), cursor), list(reads)

    def read(_file: int, _size: int) -> bytes:
        one = left.pop(0) if left else BlockingIOError
        if isinstance(one, bytes):
            return one
        raise one()

    monkeypatch.setattr(os, "read", read)
    return made


@pytest.mark.parametrize(
    ("cursor", "reads", "lost"),
    [
        (7, [record(8), record(9)], 0),
        (7, [record(6), record(7), record(8)], 0),
        (7, [record(8), BrokenPipeError, record(20)], 11),
        (7, [record(8), BrokenPipeError, record(20), BrokenPipeError, record(31)], 21),
        (7, [record(20)], 12),  # overwritten before it was begun
        (-1, [record(20), record(21)], 0),
        (-1, [record(20), BrokenPipeError, record(22)], 1),
        (-1, [BrokenPipeError, record(20)], 1),  # or more
    ],
)
def test_records_that_were_overwritten_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cursor: int, reads: Reads, lost: int
) -> None:
    known = (BOOT, cursor, 5.0) if cursor >= 0 else ("", -1, -1.0)
    made = follower(tmp_path, monkeypatch, known, reads)
    made.lines()
    assert made.lost == lost
