"""When the lines of a kernel log were logged, in the forms of talosctl and `dmesg -H`."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.case.clocks import Clock
from clusterproof.plugins.case.kernel_times import dated
from tests.case.files import BROKEN_GPU, XID_79, case_of

XID = XID_79.partition(" ")[2].strip()
OF_TALOS = "10.0.0.3: kern: warning: [2026-03-01T08:00:01.458998481Z]: "
USER = "10.0.0.3: user: warning: [2026-03-01T08:00:00.100000000Z]: "
LINES_OF_TALOS = f"{USER}[talos] service is healthy\n" * 5 + f"{OF_TALOS}NVRM: GPU at PCI:0000:c5:00: GPU-5f\n"
MINUTES = "[Mar 1 07:59] ACPI: thing\n[  +0.000012] ACPI: another\n[Mar 1 08:00] mce: a\n"


@pytest.mark.parametrize("host", ["10.0.0.3: ", "fd00::3: ", ""])
def test_what_talosctl_saved_of_the_kernel_is_evidence(host: str, tmp_path: Path) -> None:
    log = f"{LINES_OF_TALOS}{OF_TALOS}{XID}\n".replace("10.0.0.3: ", host)
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    assert (case.verdict.nodes, case.verdict.standing) == (("gpu003",), "established")


def test_its_year_is_that_of_lines_without_one(tmp_path: Path) -> None:
    log = f"{LINES_OF_TALOS}{OF_TALOS}{XID}\n"
    files = {"gpu003-dmesg.txt": log, "rank_0.log": "E0301 08:00:00.500000 9 x.cc:1] KeyError: 'image'\n"}
    (event,) = case_of(tmp_path, files).collected.events
    assert event.when.begins == 1_772_352_000.5


def test_what_a_program_wrote_beside_it_is_none(tmp_path: Path) -> None:
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": f"{LINES_OF_TALOS}{USER}{XID}\n"})
    assert (case.verdict.cause, case.collected.facts) == ("unknown", ())


def test_a_line_of_dmesg_h_is_of_its_minute_from_where_its_steps_are_counted(tmp_path: Path) -> None:
    log = f"{MINUTES}[  +1.500000] {XID}\n[ +10.250000] {XID}\n"
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})
    first, second = (fact.when for fact in case.collected.facts)
    eight = 1_772_352_000.0
    assert (first.begins, first.ends) == (eight + 1.5, eight + 60)
    assert (second.begins, second.ends) == (eight + 11.75, eight + 60)
    assert case.verdict.nodes == ("gpu003",)


def test_an_exception_within_that_minute_may_have_been_first(tmp_path: Path) -> None:
    log = f"{MINUTES}[  +1.500000] {XID}\n"
    raised = {"rank_3.log": "", "rank_0.log": "2026-03-01 08:00:20,000 KeyError: 'image'\n"}
    files = {name: text for name, text in {**BROKEN_GPU, **raised, "gpu003-dmesg.txt": log}.items() if text}
    assert case_of(tmp_path, files).verdict.cause == "unknown"


def test_a_line_behind_nothing_that_tells_a_minute_has_no_time(tmp_path: Path) -> None:
    log = f"[  +0.000012] ACPI: another\n[  +1.500000] {XID}\n"
    (fact,) = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log}).collected.facts
    assert fact.when.begins is None


def test_what_a_node_says_twice_is_said_once(tmp_path: Path) -> None:
    fallen = (
        "2026-03-01T08:00:01,000000+00:00 NVRM: The NVIDIA GPU 0000:c5:00.0\n               NVRM: (PCI ID: 10de:26b5) "
        "installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.\n"
        "2026-03-01T08:00:01,200000+00:00 NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
    )
    case = case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": fallen})
    assert case.verdict.why.endswith("Xid 79, GPU has fallen off the bus")


@pytest.mark.parametrize(
    "log",
    [
        MINUTES.replace("Mar 1 08", "Feb 31 08").replace("Mar 1 07", "Xyz 9 07"),
        f"{LINES_OF_TALOS}{OF_TALOS}{XID}\n".replace("2026-03-01T08", "2026-99-99T99"),
        MINUTES.replace("Mar 1", "Dec 31"),
    ],
    ids=["no day", "no day of Talos", "the end of a year"],
)
def test_a_time_that_is_none_makes_no_error(log: str, tmp_path: Path) -> None:
    case_of(tmp_path, {**BROKEN_GPU, "gpu003-dmesg.txt": log})


def test_steps_that_leave_the_calendar_are_of_no_time() -> None:
    lines = dated(MINUTES + "[+999999.999999] a\n" * 200, Clock(9890)).splitlines()
    assert (lines[3][:10], lines[-1]) == ("9890-03-12", "[+999999.999999] a")
