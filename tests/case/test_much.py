"""A folder as full as a user can make it: reading time grows no faster than its size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.case.files import SACCT, written
from tests.fuzz.inputs import INPUTS
from tests.fuzz.trying import Tried, soon_opened

pytestmark = pytest.mark.any_user

AT = "2026-03-01 08:{minute:02d}:00 {words}"
OOM = "[rank{}]: torch.OutOfMemoryError: CUDA out of memory.\n"
WATCHDOG = "[rank{}] Watchdog caught collective operation timeout: ran for 600000 milliseconds\n"
STATUS = "[PG 0 Rank {0}] Timeout at NCCL work: {0}, last enqueued NCCL work: {0}, last completed NCCL work: 1.\n"
INTERRUPTED = "[rank{}]: KeyboardInterrupt\n"
STEPS = "step 1\nstep 2\nstep 3\n"
MANY = SACCT.format(state="FAILED").replace("001-004", "00001-20000")
XID = (
    "2026-03-01T08:{:02d}:{:02d},000000+00:00 NVRM: Xid (PCI:0000:{:02x}:00): 79, pid=1, GPU has fallen off the bus.\n"
)
FAILED = '{{"check": "gpu.no_xid", "node": "gpu{:05d}", "verdict": "fail", "message": "a", "action": "replace"}}\n'


def many(message: str, count: int, minute: int | None = None) -> str:
    line = message if minute is None else AT.format(minute=minute, words=message)
    return "".join(line.format(number) for number in range(count))


FOLDERS: Mapping[str, Mapping[str, str]] = {
    "signs that the job outlived": {"a.out": AT.format(minute=0, words="begin\n") + many(OOM, 16_000) + STEPS},
    "signs after ends of others": {"a.out": many(WATCHDOG, 5_000, 1) + many(OOM, 6_000, 50)},
    "watchdogs that wait in as many collectives": {"a.out": many(STATUS, 30_000)},
    "signs, of many nodes": {"sacct.txt": MANY, "a.out": many(OOM, 12_000)},
    "stops, and what came behind them": {"a.out": many(INTERRUPTED, 6_000, 1) + many(OOM, 6_000, 50)},
    "evidence of many nodes": {"sacct.txt": MANY, "results.jsonl": many(FAILED, 10_000)},
    "evidence, and signs": {
        "sacct.txt": SACCT.format(state="FAILED"),
        "gpu001-dmesg.txt": "".join(XID.format(n // 60 % 60, n % 60, n % 256) for n in range(4_000)),
        "a.out": many(OOM, 6_000, 50),
    },
    "empty lines": {"a.out": "\n" * 1_000_000},
}


@pytest.mark.long
@pytest.mark.parametrize("name", FOLDERS)
def test_much_is_read_in_the_time_of_its_length(name: str, tmp_path: Path) -> None:
    read = Tried()
    soon_opened(INPUTS["cases"], written(tmp_path, FOLDERS[name]), "", read)
    assert read.read == 1
