"""Faults shown by tools that only captures contain, not collectors: SMART, software RAID, daemons, DCGM."""

from __future__ import annotations

from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import CONCERN, FAIL

DCGM_HEALTH = """\
| Health Monitor Report                                                                |
| Overall Health            | Failure                                                  |
| GPU                       |                                                          |
| -> 3                      | Failure                                                  |
|    -> Errors              |                                                          |
|       -> Memory system    | Failure                                                  |
|                           | A DBE has been detected on GPU 3.                        |
"""
RASDAEMON = """\
Memory controller events summary:
\tUncorrected on DIMM Label(s): 'DIMM_A1' location: 1:0:0:-1 errors: 2
"""
OF_TOOLS = (
    CapturedFault(
        "dcgmi health: a GPU whose memory fails",
        {"dcgmi-health.txt": DCGM_HEALTH},
        {"gpu.dcgm_diag": CONCERN},
        "dcgmi health on GPU 3: warn: Memory system: A DBE has been detected on GPU 3.",
    ),
    CapturedFault(
        "a disk that calls itself failing",
        {"smartctl.txt": "smartctl 7.2 2020-12-30\n\nSMART overall-health self-assessment test result: FAILED!\n"},
        {"storage.disk_errors": FAIL},
        "a disk: its self-assessment failed; expected a disk whose SMART status is healthy",
    ),
    CapturedFault(
        "a disk with media errors",
        {"smart-log.txt": "Smart Log for NVME device:nvme1n1 namespace-id:ffffffff\nmedia_errors : 17\n"},
        {"storage.disk_errors": CONCERN},
        "nvme1n1: 17 media errors",
    ),
    CapturedFault(
        "software RAID without one of its disks",
        {"mdstat.txt": "md0 : active raid1 sdb1[1](F) sda1[0]\n      468718592 blocks super 1.2 [2/1] [U_]\n"},
        {"storage.disk_errors": CONCERN},
        "md0 is degraded without sdb1; expected all of its disks",
    ),
    CapturedFault(
        "software RAID that is lost with one of its disks",
        {"mdstat.txt": "md0 : active raid0 nvme2n1[1](F) nvme1n1[0]\n      15001360384 blocks super 1.2 512k chunks\n"},
        {"storage.disk_errors": FAIL},
        "md0 has failed without nvme2n1; expected all of its disks",
    ),
    CapturedFault(
        "an uncorrected memory error that mcelog has counted",
        {"mcelog.txt": "SOCKET 1 CHANNEL 2 DIMM 0\nuncorrected memory errors:\n\t3 total\n\t0 in 24h\n"},
        {"host.mce_edac": FAIL},
        "SOCKET 1 CHANNEL 2 DIMM 0 counts 3 uncorrected errors",
    ),
    CapturedFault(
        "an uncorrected memory error in rasdaemon's database",
        {"ras.txt": RASDAEMON},
        {"host.mce_edac": CONCERN},
        "DIMM_A1: 2 uncorrected errors, in this boot or an earlier one; expected none",
    ),
)
