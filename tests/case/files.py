"""Small folders of a job's files, as tests write them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterproof.plugins.case.advice import Case, opened_case
from clusterproof.plugins.case.folder import collect

SACCT = (
    "JobID|State|ExitCode|Start|End|NodeList\n"
    "77|{state}|1:0|2026-03-01T07:00:00|2026-03-01T08:10:30|gpu[001-004]\n"
    "77.0|{state}|1:0|2026-03-01T07:00:00|2026-03-01T08:10:30|gpu[001-004]\n"
)
SCONTROL = """\
JobId=77 JobName=train
   JobState=OUT_OF_MEMORY Reason=OutOfMemory Dependency=(null)
   Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:125
   StartTime=2026-03-01T07:00:00 EndTime=2026-03-01T08:10:30 Deadline=N/A
   NodeList=gpu[001-004]
   StdOut=/home/u/slurm-77.out
"""
XID_79 = (
    "2026-03-01T{time},000000+00:00 NVRM: Xid (PCI:0000:c5:00): 79, pid=12, name=python, GPU has fallen off the bus.\n"
)
STEP = "2026-03-01 07:59:{second:02d},000 iteration {number}/90000 | lm loss: 2.1\n"
STEPS = "".join(STEP.format(second=second, number=second) for second in range(40, 50))
CUDA_OF_3 = (
    "gpu003:10:20 [1] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 1\n"
    "2026-03-01 08:00:02,100 [rank3] RuntimeError: CUDA error: unspecified launch failure\n"
)
WATCHDOG_OF_1 = (
    "2026-03-01 08:10:03,100 [rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
)
STOP = "slurmstepd: error: *** {of} ON gpu001 CANCELLED AT 2026-03-01T{at} DUE TO {why} ***\n"
RUNS_ON = "".join(f"2026-03-01 08:10:{second:02d},000 iteration {second}/900 | loss: 2.0\n" for second in range(20, 30))
BROKEN_GPU = {
    "rank_1.log": STEPS + WATCHDOG_OF_1,
    "rank_3.log": STEPS + CUDA_OF_3,
    "gpu003-dmesg.txt": XID_79.format(time="08:00:01"),
    "sacct.txt": SACCT.format(state="FAILED"),
}
WITHOUT_LOG = {name: text for name, text in BROKEN_GPU.items() if "dmesg" not in name}
RECORD = {"sacct.txt": SACCT.format(state="FAILED")}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """The folder with these files."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def case_of(folder: Path, files: Mapping[str, str]) -> Case:
    """The case that these files form."""
    return opened_case(collect(written(folder, files)))
