"""How much of their file system logs take, on evidence that no fault of the testbed produces."""

from __future__ import annotations

from typing import Any

import pytest

from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.core.verdict import Verdict
from tests.builders.evaluated import expect, result_of
from tests.builders.recordings import node
from tests.checks.storage.given import mount

PASS, CONCERN, INCOMPLETE, NA = Verdict.PASS, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE
GIB = 1024 * 1024
LARGEST = [{"path": "/var/log/syslog", "kib": 15 * GIB}, {"path": "/var/log/a b", "kib": 512 * 1024}]
SEEN = (
    "/var/log takes 20.0 GiB, 20 % of its file system; the largest files are /var/log/syslog (15.0 GiB), "
    "/var/log/a_b (512 MiB)"
)


def logs(path: str = "/var/log", kib: int = 20 * GIB, **more: Any) -> dict[str, Any]:
    """A folder of logs that takes a fifth of a file system of 100 GiB."""
    whole = {"unread": 0, "is_cut": False, "total_kib": 100 * GIB, "used_kib": 50 * GIB}
    return {"name": path, "kib": kib, "largest": LARGEST, **whole, **more}


def mounts(*paths: str) -> dict[str, Any]:
    return {"mounts": [mount(path) for path in paths], "fstab": []}


@pytest.mark.parametrize(
    ("folders", "verdict", "message"),
    [
        ([logs()], CONCERN, f"{SEEN}; expected less than 20 %, or 10 GiB"),
        ([logs(kib=20 * GIB - 1)], PASS, ""),
        ([logs(kib=10 * GIB - 1, total_kib=20 * GIB)], PASS, ""),  # a small file system
        ([logs(kib=10 * GIB, total_kib=20 * GIB)], CONCERN, "/var/log takes 10.0 GiB, 50 % of its file system"),
        ([logs(kib=0), logs("/var/crash")], CONCERN, "/var/crash takes 20.0 GiB"),
        ([logs(is_cut=True)], INCOMPLETE, "concern: /var/log takes at least 20.0 GiB"),
        ([logs(unread=2)], INCOMPLETE, "concern: /var/log takes at least 20.0 GiB"),
        ([logs(kib=0, is_cut=True), logs("/var/crash")], INCOMPLETE, "concern: /var/crash takes 20.0 GiB"),
        ([logs(kib=0), logs("/var/crash", kib=0, is_cut=True)], CONCERN, "/var/crash has more than 8,192 entries"),
        ([logs(kib=0), logs("/var/crash", kib=0, unread=1)], CONCERN, "1 folder in /var/crash could not be read"),
        ([logs(kib=0, unread=2)], INCOMPLETE, "2 folders in /var/log could not be read"),
        ([logs(kib=0, unread=1)], INCOMPLETE, "1 folder in /var/log could not be read"),
        (
            [logs(kib=2 * GIB, is_cut=True)],
            INCOMPLETE,
            "/var/log has more than 8,192 entries, or its disk is slow: the rest was not read",
        ),
        ([logs(total_kib=0)], INCOMPLETE, "the file system of /var/log does not report its size"),
        ([{"name": "/var/log", "never_read": "EIO"}, logs("/var/crash")], INCOMPLETE, "concern: /var/crash takes"),
        ([logs(largest=None)], INCOMPLETE, "concern: /var/log takes 20.0 GiB, 20 % of its file system; expected"),
        ([logs(is_cut=None)], INCOMPLETE, f"concern: {SEEN}"),
        ([], NA, "there is no /var/log and no /var/crash"),
    ],
)
def test_logs_take_a_small_share_of_their_file_system(folders: Any, verdict: Verdict, message: str) -> None:
    recorded = node("gpu001", logs={"folders": folders}, mounts=mounts("/"))
    expect(result_of("storage.log_growth", recorded), verdict, message)


@pytest.mark.parametrize(
    ("used_gib", "total_gib", "verdict"),
    [(19, 100, PASS), (20, 100, INCOMPLETE), (9, 20, PASS), (10, 20, INCOMPLETE), (None, 100, INCOMPLETE)],
)
def test_logs_of_a_file_system_that_is_little_used_need_not_be_read_whole(
    used_gib: int | None, total_gib: int, verdict: Verdict
) -> None:
    used_kib = used_gib and used_gib * GIB
    folder = logs(kib=0, is_cut=True, unread=1, used_kib=used_kib, total_kib=total_gib * GIB)
    assert result_of("storage.log_growth", node("gpu001", logs={"folders": [folder]})).verdict is verdict


@pytest.mark.parametrize(
    ("mounts", "verdict", "message"),
    [
        (mounts("/", "/var/log"), PASS, ""),
        (mounts("/", "/var"), CONCERN, SEEN),
        (Collected(Status.TIMED_OUT, detail="a file server hangs"), INCOMPLETE, "a file server hangs"),
    ],
)
def test_logs_may_fill_a_file_system_that_is_mounted_for_them(mounts: Any, verdict: Verdict, message: str) -> None:
    recorded = node("gpu001", logs={"folders": [logs()]}, mounts=mounts)
    expect(result_of("storage.log_growth", recorded), verdict, message)


def test_what_was_seen_of_a_folder_counts_where_the_other_hangs() -> None:
    names = [{"name": "/var/log"}, {"name": "/var/crash"}]
    hung = Collected(Status.TIMED_OUT, {"folders": [logs()], "all_folders": names}, detail="/var/crash: no answer")
    result = result_of("storage.log_growth", node("gpu001", logs=hung, mounts=mounts("/")))
    expect(result, INCOMPLETE, "/var/crash: no answer")
    assert SEEN in result.message
