"""Errors counted by mcelog and rasdaemon, in a capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import observed_in, output_of

CHECK = "host.mce_edac"
MCELOG = """\
$ sudo mcelog --client
Memory errors
SOCKET 1 CHANNEL 2 DIMM 0
DMI_NAME "P2-DIMMC1"
corrected memory errors:
\t{corrected} total
\t{day} in 24h
uncorrected memory errors:
\t{uncorrected} total
\t0 in 24h
"""
CLEAN = "No Memory errors.\n\nNo PCIe AER errors.\n\nNo Extlog errors.\n\nNo MCE errors.\n"
SUMMARY = """\
Memory controller events summary:
\t{kind} on DIMM Label(s): 'CPU_SrcID#0_MC#1_Chan#0_DIMM#0' location: 1:0:0:-1 errors: {count}

No PCIe AER errors.

No MCE errors.
"""
CHECKS = "No Memory errors.\n\nMCE records summary:\n\t{count} {said} errors\n"
EVENTS = """\
Memory controller events:
1 2026-11-24 11:42:07 +0000 {count} {kind} error(s): memory read error at DIMM_A1 location: 1:0:0:-1, addr 6, grain 7
2 2026-11-25 11:42:07 +0000 {count} {kind} error(s): memory read error at DIMM_A1 location: 1:0:0:-1, addr 6, grain 7

No PCIe AER errors.
"""

_ROW = (
    "112 2023-05-31 10:06:19 -0400 error: MEMORY CONTROLLER RD_CHANNEL0_ERR{between}Transaction: Memory read error, "
    "mcg mcgstatus=0, mci {kind} n_errors=1{between}mcgcap=0x0f000c1c, status=0x{status}, addr=0x1efa4c7cc40\n"
)
_PAGE = "3 2023-05-31 10:06:19 -0400 error: pfn=0x3f5d2a, page_type=dirty LRU page, action_result=Recovered\n"
_EXTLOG = (
    "7 2023-05-31 10:06:19 -0400 error: type=multi-bit ECC, severity={severity}, address=0x1efa4c7cc40, fru_id=0\n"
)
UC, CE = "bc00004200800090", "8c00004200800090"


def machine_check(
    kind: str = "Uncorrected_error", status: str = UC, between: str = " ", heading: str = "MCE events:\n"
) -> str:
    """The output of `ras-mc-ctl --errors` for one."""
    return "No Memory errors.\n\nNo PCIe AER errors.\n\n" * bool(heading) + heading + _ROW.format(**locals())


def of_pcie(row: str) -> str:
    """The output of `ras-mc-ctl --errors` for an error of a PCIe device."""
    return f"No Memory errors.\n\nPCIe AER events:\n1 2023-05-31 10:06:19 -0400 {row}\n\nNo MCE errors.\n"


OF_2023 = EVENTS.replace("2026-11-24", "2023-03-01").replace("2026-11-25", "2023-03-01")


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "Memory errors\n",
        MCELOG.format(corrected=3, day=0, uncorrected=0),
        CLEAN,
        SUMMARY.format(kind="Corrected", count=34),
        CHECKS.format(count=3, said="Corrected error, no action required."),
        EVENTS.format(kind="Corrected", count=1),
        machine_check("Corrected_error", CE),
        machine_check("Corrected_error", CE, "\n", heading="...\n"),
        machine_check("", CE, heading=""),
        of_pcie("Corrected error: BIT6 Bad TLP"),
        of_pcie("0000:3b:00.0 Corrected error: Receiver Error"),
    ],
)
def test_where_few_errors_were_corrected_nothing_is_said(text: str, tmp_path: Path) -> None:
    assert "edac" in output_of(text)
    assert observed_in(tmp_path, text, CHECK) == []


@pytest.mark.parametrize(
    ("text", "verdict", "message"),
    [
        (
            MCELOG.format(corrected=3, day=0, uncorrected=2),
            Verdict.FAIL,
            "SOCKET 1 CHANNEL 2 DIMM 0 counts 2 uncorrected errors",
        ),
        (
            MCELOG.format(corrected=2841, day=2841, uncorrected=0),
            Verdict.CONCERN,
            "2840 corrected errors a day (SOCKET 1 CHANNEL 2 DIMM 0)",
        ),
        (
            SUMMARY.format(kind="Uncorrected", count=2),
            Verdict.CONCERN,
            "CPU_SrcID#0_MC#1_Chan#0_DIMM#0: 2 uncorrected errors, in this boot or an earlier one",
        ),
        (
            SUMMARY.format(kind="Fatal", count=2),
            Verdict.CONCERN,
            "CPU_SrcID#0_MC#1_Chan#0_DIMM#0: 2 uncorrected errors, in this boot or an earlier one",
        ),
        (
            CHECKS.format(count=3, said="Uncorrected, software containable error."),
            Verdict.CONCERN,
            "machine checks: 3 uncorrected errors, in this boot or an earlier one",
        ),
        (
            EVENTS.format(kind="Uncorrected", count=1),
            Verdict.CONCERN,
            "DIMM_A1: 2 uncorrected errors, in this boot or an earlier one",
        ),
        (
            EVENTS.format(kind="Corrected", count=5000),
            Verdict.CONCERN,
            "DIMM_A1: 10000 corrected errors, in this boot or an earlier one",
        ),
        *(
            (text, Verdict.CONCERN, "machine checks: 1 uncorrected errors, in this boot or an earlier one")
            for text in (
                machine_check(),
                machine_check(heading=""),
                machine_check(heading="...\n"),
                machine_check(between="\n"),
                machine_check("Error_overflow Uncorrected_error"),
                machine_check("", UC),
                machine_check("", UC.upper()),
                machine_check("Corrected_error", CE) + machine_check(heading=""),
                machine_check(heading="") + machine_check("Corrected_error", CE, heading=""),
            )
        ),
        *(
            (of_pcie(row), Verdict.CONCERN, "PCIe (AER): 1 uncorrected errors, in this boot or an earlier one")
            for row in (
                "Uncorrected (Fatal) error: BIT14 Completion Timeout",
                "Uncorrected (Non-Fatal) error: Completion Timeout",
                "0000:3b:00.0 Uncorrected (Non-Fatal) error: Completion Timeout",
            )
        ),
        (
            "PCIe AER events summary:\n\t2 Uncorrected (Fatal) errors: BIT14\n\t7 Corrected errors: BIT6\n",
            Verdict.CONCERN,
            "PCIe (AER): 2 uncorrected errors, in this boot or an earlier one",
        ),
        *(
            (text, Verdict.CONCERN, "firmware (extlog): 3 uncorrected errors, in this boot or an earlier one")
            for text in (
                f"{CLEAN}Extlog records summary:\n\t1 multi-bit ECC fatal errors\n\t2 unknown recoverable errors\n",
                "Extlog records summary:\n\t9 single-bit ECC corrected errors\n\t3 parity error fatal errors\n",
                f"Extlog events:\n{_EXTLOG.format(severity='fatal') * 3}{_EXTLOG.format(severity='corrected')}",
            )
        ),
        *(
            (text, Verdict.CONCERN, "memory failures: 4 uncorrected errors, in this boot or an earlier one")
            for text in (
                f"{CLEAN}Memory failure events summary:\n\tDelayed errors: 1\n\tRecovered errors: 3\n",
                "Memory failure events summary:\n\tIgnored errors: 4\n",
                f"{CLEAN}Memory failure events:\n{_PAGE * 4}",
            )
        ),
        (
            OF_2023.format(kind="Corrected", count=16),
            Verdict.CONCERN,
            "DIMM_A1: 32 corrected errors, in this boot or an earlier one",
        ),
    ],
)
def test_errors_that_a_daemon_has_counted_are_said(text: str, verdict: Verdict, message: str, tmp_path: Path) -> None:
    assert observed_in(tmp_path, text, CHECK) == [(verdict, message)]
