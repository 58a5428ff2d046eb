"""Kernel logs that a node had rotated: only its last boot counts, whichever file it is in."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures import layout, rotated
from clusterproof.plugins.captures.collection import understood
from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import ILL, WELL, XID, written, xids

BOOTED = "2026-03-01T07:00:00.000000+00:00 gpu001 kernel: [    0.000000] Linux version 6.8.0-1021-aws (x)\n"
QUIET = "2026-03-01T08:00:00.000000+00:00 gpu001 kernel: [ 3600.000000] usb 1-1: new device\n"
BROKEN = f"2026-03-01T09:00:00.000000+00:00 gpu001 kernel: [ 7200.000000] {XID}\n"


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        ({"dmesg": WELL, "dmesg.0": ILL}, Verdict.PASS),
        ({"dmesg": ILL, "dmesg.0": WELL}, Verdict.FAIL),
        ({"dmesg.0": ILL}, Verdict.FAIL),
        ({"dmesg.txt": WELL, "dmesg.1.gz": ILL}, Verdict.FAIL),  # they may be of the same boot
        ({"dmesg": WELL, "dmesg.1.gz": ILL}, Verdict.PASS),
        ({"kern.log": BOOTED + QUIET, "kern.log.1": BROKEN}, Verdict.PASS),
        ({"kern.log": QUIET, "kern.log.1": BOOTED + BROKEN}, Verdict.FAIL),
        ({"kern.log": BROKEN, "kern.log.1": BOOTED + QUIET}, Verdict.FAIL),
        ({"kern.log": QUIET, "kern.log.2.gz": BROKEN, "kern.log.1": BOOTED}, Verdict.PASS),
    ],
)
def test_of_rotated_kernel_logs_the_last_boot_counts(files: dict[str, str], verdict: Verdict, tmp_path: Path) -> None:
    packed = {name: gzip.compress(text.encode()) if name.endswith(".gz") else text for name, text in files.items()}
    folder = written(tmp_path, **{f"gpu001/{name}": content for name, content in packed.items()})
    assert xids(folder) == {"gpu001": verdict}


def test_the_log_of_an_earlier_boot_is_named(tmp_path: Path) -> None:
    folder = written(tmp_path, **{"gpu001/dmesg": WELL, "gpu001/dmesg.0": ILL})
    unknown = understood(layout(folder).nodes[0], folder, collector_names()).unknown
    assert unknown == ("gpu001/dmesg.0: a kernel log of an earlier boot, which is left out",)


def test_a_part_that_is_not_read_is_named_and_hides_no_fault_in_another(tmp_path: Path) -> None:
    folder = written(tmp_path, **{"gpu001/kern.log": BOOTED + BROKEN, "gpu001/kern.log.1": "PK\x03\x04 a"})
    unknown = understood(layout(folder).nodes[0], folder, collector_names()).unknown
    assert [line.partition(",")[0] for line in unknown] == ["gpu001/kern.log.1: is an archive"]
    assert xids(folder) == {"gpu001": Verdict.FAIL}


def test_of_all_parts_no_more_is_read_than_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotated, "MAX_BYTES", len(QUIET))
    folder = written(tmp_path, **{"gpu001/kern.log": QUIET, "gpu001/kern.log.1": BOOTED + BROKEN})
    unknown = understood(layout(folder).nodes[0], folder, collector_names()).unknown
    assert unknown == (f"gpu001/kern.log.1: is left out, as the later parts of the log have {len(QUIET):,} bytes",)
    assert xids(folder) == {"gpu001": Verdict.INCOMPLETE}
