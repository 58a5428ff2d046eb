"""Disks' and software RAID's own health reports in a capture."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.captures.collection import read_text
from clusterproof.plugins.core.verdict import Verdict
from tests.captures.captured import evaluated, observed_in, output_of, written
from tests.captures.disk_outputs import (
    CONTAINER,
    JSON,
    MDADM,
    MDADM_INACTIVE,
    MDSTAT,
    OF_EBS,
    SMART_LOG,
    SMARTCTL,
    SMARTCTL_ATA,
    SMARTCTL_HOT,
    SMARTCTL_JSON,
    SMARTCTL_SAS,
    SMARTCTL_SCSI_JSON,
    SMARTCTL_UNKNOWN,
)

CHECK = "storage.disk_errors"


@pytest.mark.parametrize(
    "text",
    [
        SMART_LOG.format(warning="0", used=1, errors="0"),
        SMART_LOG.format(warning="0x0", used=99, errors="0"),
        OF_EBS,
        JSON.replace(":4", ":0"),
        SMARTCTL.format(result="PASSED", errors="0"),
        SMARTCTL_ATA.format(result="PASSED", failed="    -      "),
        SMARTCTL_ATA.format(result="PASSED", failed="In_the_past"),
        SMARTCTL_SAS.format(result="OK"),
        SMARTCTL_JSON.replace("false", "true"),
        MDSTAT.format(flag="", working=4, states="UUUU", stripe=""),
        MDADM.format(state="clean", working=2, second="active sync"),
        CONTAINER.format(kind="imsm"),
        CONTAINER.format(kind="ddf"),
        "Personalities : [raid0]\nunused devices: <none>\n",
    ],
)
def test_healthy_disks_have_no_findings_and_no_gaps(text: str, tmp_path: Path) -> None:
    assert "nvme" in output_of(text)
    assert observed_in(tmp_path, text, CHECK) == []


@pytest.mark.parametrize(
    ("text", "verdict", "message"),
    [
        (
            SMART_LOG.format(warning="0x9", used=1, errors="0"),
            Verdict.FAIL,
            "nvme1: few spare blocks left, read-only",
        ),
        (SMART_LOG.format(warning="2", used=1, errors="0"), Verdict.CONCERN, "nvme1: too hot or too cold"),
        (SMART_LOG.format(warning="0", used=1, errors="1,017"), Verdict.CONCERN, "nvme1: 1017 media errors"),
        (
            SMART_LOG.format(warning="0", used=127, errors="0"),
            Verdict.CONCERN,
            "nvme1: 127 % of its endurance used",
        ),
        (SMART_LOG.format(warning="0x4", used=100, errors="0"), Verdict.CONCERN, "nvme1: 100 % of its endurance used"),
        (
            SMART_LOG.format(warning="4", used=100, errors="0").replace("media_errors", "errors"),
            Verdict.CONCERN,
            "nvme1: 100 % of its endurance used",
        ),
        (SMART_LOG.format(warning="0x4", used=99, errors="0"), Verdict.FAIL, "nvme1: degraded by media errors"),
        (
            SMARTCTL.format(result="FAILED!", errors="0").replace("0x00", "0x04").replace(" 2%", " 120%"),
            Verdict.CONCERN,
            "nvme0n1: 120 % of its endurance used",
        ),
        (JSON, Verdict.FAIL, "nvme1: degraded by media errors"),
        (JSON.partition("\n")[2], Verdict.FAIL, "a disk: degraded by media errors"),
        (SMARTCTL.format(result="FAILED!", errors="0"), Verdict.FAIL, "nvme0n1: its self-assessment failed"),
        (SMARTCTL.format(result="PASSED", errors="231"), Verdict.CONCERN, "nvme0n1: 231 media errors"),
        (
            SMARTCTL.format(result="FAILED!", errors="0").partition("\n")[2],
            Verdict.FAIL,
            "the disk S6CKNT0W500123: its self-assessment failed",
        ),
        (
            SMARTCTL_ATA.format(result="PASSED", failed="FAILING_NOW"),
            Verdict.FAIL,
            "sda: Reallocated_Sector_Ct is below its threshold",
        ),
        (
            SMARTCTL_SAS.format(result="FAILURE PREDICTION THRESHOLD EXCEEDED [asc=5d, ascq=0]"),
            Verdict.FAIL,
            "sdb: its self-assessment failed (FAILURE PREDICTION THRESHOLD EXCEEDED [asc=5d, ascq=0])",
        ),
        (
            SMARTCTL_SAS.format(result="WARNING - SPECIFIED TEMPERATURE EXCEEDED [asc=b, ascq=1]"),
            Verdict.CONCERN,
            "sdb: it says WARNING - SPECIFIED TEMPERATURE EXCEEDED [asc=b, ascq=1]",
        ),
        (
            SMARTCTL_SCSI_JSON.format(said="WARNING - SPECIFIED TEMPERATURE EXCEEDED"),
            Verdict.CONCERN,
            "sdb: it says WARNING - SPECIFIED TEMPERATURE EXCEEDED",
        ),
        (
            SMARTCTL_SCSI_JSON.format(said="HARDWARE IMPENDING FAILURE GENERAL HARD DRIVE FAILURE"),
            Verdict.FAIL,
            "sdb: its self-assessment failed (HARDWARE IMPENDING FAILURE GENERAL HARD DRIVE FAILURE)",
        ),
        (
            SMARTCTL.format(result="FAILED!", errors="0").replace("0x00", "0x02"),
            Verdict.CONCERN,
            "nvme0n1: too hot or too cold",
        ),
        (SMARTCTL_HOT.format(more=""), Verdict.CONCERN, "nvme0: too hot or too cold"),
        (
            SMARTCTL_HOT.format(more="- media has been placed in read only mode\n"),
            Verdict.FAIL,
            "nvme0: its self-assessment failed",
        ),
        (
            SMARTCTL_JSON.replace("false", 'false, "nvme": {"value": 2}'),
            Verdict.CONCERN,
            "sda: too hot or too cold",
        ),
        (SMARTCTL_JSON, Verdict.FAIL, "sda: its self-assessment failed"),
        (
            "$ sudo smartctl -a /dev/sda | grep health\nSMART overall-health self-assessment test result: FAILED!\n",
            Verdict.FAIL,
            "sda: its self-assessment failed",
        ),
        (
            MDSTAT.format(flag="(F)", working=3, states="U_UU", stripe=""),
            Verdict.CONCERN,
            "md127 is degraded without nvme2n1",
        ),
        (
            MDSTAT.format(flag="", working=3, states="_UUU", stripe=""),
            Verdict.CONCERN,
            "md127 is degraded without 1 of 4 disks",
        ),
        (
            MDSTAT.format(flag="", working=4, states="UUUU", stripe="").replace("active raid0", "broken raid0"),
            Verdict.FAIL,
            "md0 has failed",
        ),
        (
            MDSTAT.format(flag="", working=4, states="UUUU", stripe="(F)"),
            Verdict.FAIL,
            "md0 has failed without nvme5n1",
        ),
        ("md0 : inactive nvme5n1[1](S)\n      7500 blocks super 1.2\n", Verdict.CONCERN, "md0 is not active"),
        (
            MDADM.format(state="clean, degraded", working=1, second="faulty"),
            Verdict.CONCERN,
            "md127 is degraded without nvme2n1",
        ),
        (
            MDADM.format(state="clean, FAILED", working=0, second="faulty"),
            Verdict.FAIL,
            "md127 has failed without 2 of 2 disks (nvme2n1 failed)",
        ),
        (
            MDSTAT.format(flag="(F)", working=2, states="U__U", stripe=""),
            Verdict.FAIL,
            "md127 has failed without 2 of 4 disks (nvme2n1 failed)",
        ),
        (
            MDSTAT.format(flag="", working=2, states="U__U", stripe="").replace("raid5 nvme", "raid6 nvme"),
            Verdict.CONCERN,
            "md127 is degraded without 2 of 4 disks",
        ),
        (
            MDSTAT.format(flag="", working=1, states="U___", stripe="").replace("raid5 nvme", "raid6 nvme"),
            Verdict.FAIL,
            "md127 has failed without 3 of 4 disks",
        ),
        (
            MDADM.format(state="clean", working=0, second="removed"),
            Verdict.FAIL,
            "md127 has failed without 2 of 2 disks",
        ),
        (MDADM_INACTIVE, Verdict.CONCERN, "md127 is not active"),
    ],
)
def test_what_a_disk_or_an_array_says_of_itself_is_said(
    text: str, verdict: Verdict, message: str, tmp_path: Path
) -> None:
    assert observed_in(tmp_path, text, CHECK) == [(verdict, message)]


def test_a_self_assessment_that_could_not_be_read_is_no_failure(tmp_path: Path) -> None:
    assert observed_in(tmp_path, SMARTCTL_UNKNOWN, CHECK) == []
    assert "nvme" not in read_text(SMARTCTL_UNKNOWN)[0]


def test_each_of_several_disks_that_nobody_named_counts(tmp_path: Path) -> None:
    report = SMARTCTL_SAS.partition("\n")[2]
    disks = f"{report.format(result='OK')}{report.format(result='A FAILURE')}"
    text = f"$ for disk in /dev/sd?; do smartctl -H $disk; done\n{disks}"
    assert observed_in(tmp_path, text, CHECK) == [(Verdict.FAIL, "a disk: its self-assessment failed (A FAILURE)")]


def test_where_two_disks_were_asked_by_one_command_neither_is_named(tmp_path: Path) -> None:
    report = SMARTCTL_SAS.partition("\n")[2].format(result="A FAILURE")
    text = f"$ smartctl -H /dev/sda; smartctl -H /dev/sdb\n{report}"
    assert observed_in(tmp_path, text, CHECK)[0][1].startswith("a disk: ")


@pytest.mark.parametrize(
    "text",
    [
        "smartctl 7.2 2020-12-30\n\nSmartctl open device: /dev/sda failed: Permission denied\n",
        "alice wrote: SMART overall-health self-assessment test result: FAILED!\n",
    ],
)
def test_what_is_no_report_of_a_disk_is_none(text: str) -> None:
    assert "nvme" not in read_text(text)[0]


@pytest.mark.long
@pytest.mark.parametrize(("state", "verdict"), [("live", Verdict.PASS), ("dead", Verdict.FAIL)])
def test_the_command_that_shows_the_state_of_controllers_is_read(state: str, verdict: Verdict, tmp_path: Path) -> None:
    text = f"/sys/class/nvme/nvme0/state:live\n/sys/class/nvme/nvme1/state:{state}\n"
    result = evaluated(written(tmp_path, nvme=text) / "nvme")["storage.nvme_state"]
    assert (result.verdict, "nvme1: the controller is dead" in result.message) == (verdict, state == "dead")


def test_a_worn_disk_with_media_errors_fails(tmp_path: Path) -> None:
    text = SMART_LOG.format(warning="0x4", used=100, errors="3")
    assert (Verdict.FAIL, "nvme1: degraded by media errors") in observed_in(tmp_path, text, CHECK)
