"""Slurm's answers about all jobs and about each, for tests of a period."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

NOW = 1_772_438_400.0  # 2026-03-02 08:00 UTC
HEAD = "JobID|State|ExitCode|Start|End|NodeList|AllocTRES"
TIMES = "2026-03-01T07:00:00|2026-03-01T0{hour}:00:00"
ROW = f"{{number}}|{{state}}|{{code}}|{TIMES}|{{nodes}}|billing=8,gres/gpu={{gpus}},node=2"
NO_ACCOUNTING = (1, "Slurm accounting storage is disabled\n")
NO_JOB = (1, "slurm_load_jobs error: Invalid job id specified\n")


def row(number: str, state: str = "FAILED", **more: object) -> str:
    is_well = state == "COMPLETED"
    fields = {"code": "0:0" if is_well else "1:0", "hour": 9, "nodes": "gpu[001-002]", "gpus": 16}
    return ROW.format(**{**fields, "number": number, "state": state, **more})


class Slurm:
    """Answers about all jobs and about each; `asked` keeps the queries."""

    def __init__(
        self, rows: Sequence[str], is_accounted: bool = True, outputs: Mapping[str, Path] | None = None
    ) -> None:
        self.rows = {line.partition("|")[0]: line for line in rows}
        self.is_accounted = is_accounted
        self.outputs = outputs or {}
        self.steps: Sequence[str] = ()  # rows of jobs' steps
        self.asked: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str]) -> tuple[int, str]:
        self.asked.append(command)
        if command[0] == "sacct":
            numbers = command[2].split(",") if "-j" in command else self.rows
            chosen = [self.rows[number] for number in numbers]
            return (
                (0, "\n".join([HEAD, *chosen, *(self.steps if "-j" in command else ())]))
                if self.is_accounted
                else NO_ACCOUNTING
            )
        if command[0] == "scontrol" and not self.is_accounted:
            wanted = self.rows if len(command) == 3 else [command[3]]
            return 0, "\n\n".join(self._shown(number) for number in wanted)
        if command[0] == "squeue":
            return 0, "\n".join(self.rows if "-j" not in command else [command[command.index("-j") + 1]])
        return (0, "") if command[0] == "sinfo" else NO_JOB

    def _shown(self, number: str) -> str:
        _, state, code, start, end, nodes, tres = self.rows[number].split("|")
        return (
            f"JobId={number} JobName=x\n   UserId=u({os.getuid()}) GroupId=u(0)\n   JobState={state} Reason=None\n"
            f"   Requeue=0 Restarts=0 ExitCode={code}\n   StartTime={start} EndTime={end} Deadline=N/A\n"
            f"   NodeList={nodes}\n   TRES={tres}\n   StdOut={self.outputs.get(number, '/dev/null')}\n"
        )


class Named(Slurm):
    """The first job's name contains a line break and its owner's forged record; Slurm has forgotten the last job."""

    def __init__(self, rows: Sequence[str], name: str) -> None:
        super().__init__(rows, is_accounted=False)
        self.name = name

    def __call__(self, command: Sequence[str]) -> tuple[int, str]:
        status, output = super().__call__(command)
        if list(command) == ["scontrol", "show", "job", list(self.rows)[-1]]:
            return NO_JOB
        return status, output.replace("JobName=x", f"JobName=x\n{self.name}", 1) if command[0] == "scontrol" else output
