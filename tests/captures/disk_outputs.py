"""Output of programs about disks and software RAID, with placeholders for faults."""

from __future__ import annotations

SMART_LOG = """\
$ sudo nvme smart-log /dev/nvme1
Smart Log for NVME device:nvme1 namespace-id:ffffffff
critical_warning                        : {warning}
temperature                             : 33 °C (306 K)
available_spare                         : 100%
available_spare_threshold               : 10%
percentage_used                         : {used}%
Data Units Written                      : 42,109,211 (21.56 TB)
power_on_hours                          : 2,410
media_errors                            : {errors}
num_err_log_entries                     : 12
"""
OF_EBS = """\
$ sudo nvme smart-log /dev/nvme0
Smart Log for NVME device:nvme0 namespace-id:ffffffff
critical_warning                        : 0
temperature                             : -273 °C (0 K)
available_spare                         : 0%
available_spare_threshold               : 0%
percentage_used                         : 0%
media_errors                            : 0
"""
JSON = """\
$ nvme smart-log /dev/nvme1 -o json
{
  "critical_warning":4,
  "avail_spare":100,
  "spare_thresh":10,
  "percent_used":1,
  "media_errors":0
}
"""
SMARTCTL = """\
# smartctl -a /dev/nvme0n1
smartctl 7.2 2020-12-30 r5155 [x86_64-linux-5.15.0-1051-aws] (local build)

=== START OF INFORMATION SECTION ===
Model Number:                       SAMSUNG MZQL27T6HBLA-00A07
Serial Number:                      S6CKNT0W500123

=== START OF SMART DATA SECTION ===
SMART overall-health self-assessment test result: {result}

SMART/Health Information (NVMe Log 0x02)
Critical Warning:                   0x00
Available Spare:                    100%
Percentage Used:                    2%
Media and Data Integrity Errors:    {errors}
Error Information Log Entries:      0
"""
SMARTCTL_ATA = """\
# smartctl -A -H /dev/sda
smartctl 7.2 2020-12-30 r5155 [x86_64-linux-5.15.0] (local build)
SMART overall-health self-assessment test result: {result}
ID# ATTRIBUTE_NAME          FLAG     VALUE WORST THRESH TYPE      UPDATED  WHEN_FAILED RAW_VALUE
  5 Reallocated_Sector_Ct   0x0033   001   001   010    Pre-fail  Always   {failed} 2040
"""
SMARTCTL_SAS = "$ smartctl -H /dev/sdb\nsmartctl 7.2 2020-12-30\n\nSMART Health Status: {result}\n"
SMARTCTL_JSON = """\
{
  "smartctl": {"version": [7, 2]},
  "device": {"name": "/dev/sda", "type": "sat"},
  "serial_number": "2006",
  "smart_status": {"passed": false}
}
"""
SMARTCTL_HOT = """\
# smartctl -H /dev/nvme0
smartctl 7.2 2020-12-30 r5155 [x86_64-linux-5.15.0] (local build)

=== START OF SMART DATA SECTION ===
SMART overall-health self-assessment test result: FAILED!
- temperature is above or below threshold
{more}"""
SMARTCTL_UNKNOWN = """\
# smartctl -a /dev/sda
smartctl 7.2 2020-12-30 r5155 [x86_64-linux-5.15.0] (local build)
SMART overall-health self-assessment test result: UNKNOWN!
SMART Status, Attributes and Thresholds cannot be read.
"""
SMARTCTL_SCSI_JSON = """\
{{
  "smartctl": {{"version": [7, 3]}},
  "device": {{"name": "/dev/sdb", "type": "scsi"}},
  "smart_status": {{"passed": false, "scsi": {{"asc": 11, "ascq": 1, "ie_string": "{said}"}}}}
}}
"""
CONTAINER = """\
Personalities : [raid1]
md127 : inactive sdb[1](S) sda[0](S)
      5928 blocks super external:{kind}

"""
MDSTAT = """\
$ cat /proc/mdstat
Personalities : [raid0] [raid1] [raid6] [raid5] [raid4]
md127 : active raid5 nvme4n1[4] nvme3n1[2] nvme2n1[1]{flag} nvme1n1[0]
      22502040576 blocks super 1.2 level 5, 512k chunk, algorithm 2 [4/{working}] [{states}]

md0 : active raid0 nvme6n1[1] nvme5n1[0]{stripe}
      15001360384 blocks super 1.2 512k chunks

unused devices: <none>
"""
MDADM = """\
# mdadm --detail /dev/md127
/dev/md127:
           Version : 1.2
        Raid Level : raid1
      Raid Devices : 2
     Total Devices : 2
             State : {state}
    Active Devices : {working}
    Failed Devices : 1

    Number   Major   Minor   RaidDevice State
       0     259        0        0      active sync   /dev/nvme1n1
       -     259        1        -      {second}   /dev/nvme2n1
"""
MDADM_INACTIVE = """\
# mdadm --detail /dev/md127
/dev/md127:
           Version : 1.2
        Raid Level : raid0
     Total Devices : 1
       Persistence : Superblock is persistent

             State : inactive
   Working Devices : 1

    Number   Major   Minor   RaidDevice

       -     259        0        -        /dev/nvme1n1
"""
