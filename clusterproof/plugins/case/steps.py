"""How far a job came, by the lines in which frameworks tell of steps; and what of it ranks outlived."""

from __future__ import annotations

import re
from collections import deque

from clusterproof.plugins.case import Span
from clusterproof.plugins.core.record import field, record

STEPS_AFTER = 3  # so many different steps after a line that looks like an end, it was none
TIMES_OF_STEPS = 64  # of each rank
MAX_STEPPERS = 512  # ranks of which steps are followed; more do not tell more of whether the job went on
WHILE_IT_RUNS = ("not_a_number",)  # signs that stand in lines of steps

_STEP = re.compile(
    r"(?:^|[\s\[({'\"])(?:iteration|iter|step|global_step|batch|update|num_updates)\b['\"]?[ :=#]{1,20}['\"]?(\d{1,18})"
    r"|(?:\bEpoch:? ?|\bTrain: \d{1,9} |\])\[ {0,8}(\d{1,9})/ {0,8}\d{1,9}[\] (]"  # torchvision, mmengine, timm
    r"|\bepoch \d{1,9}: {1,9}(\d{1,9}) / \d{1,9} "  # fairseq
    r"|:\d{1,9}-(\d{1,9})batch:"  # ESPnet
    r"|[| ](\d{1,9})/\d{1,9} \[[\d:]{4,12}<",  # a bar of tqdm
    re.IGNORECASE,
)


def step_of(line: str) -> int | None:
    """The step of a training of which a line tells, if of any; Slurm's programs tell of the steps of jobs."""
    match = None if "slurmstepd" in line or "srun: " in line else _STEP.search(line)
    return int(match[match.lastindex or 1]) if match else None


@record
class Steps:
    """Those of the ranks of one file: of each the last few with their lines, and when they were."""

    told: dict[int | None, deque[tuple[int, int]]] = field(default_factory=dict)
    times: dict[int | None, dict[int, float]] = field(default_factory=dict)

    def add(self, number: int, rank: int | None, step: int, stamp: Span) -> None:
        """One of a rank, in the line of this number; it may tell of one more than once."""
        if rank not in self.told and len(self.told) == MAX_STEPPERS:
            return
        times = self.times.setdefault(rank, {})
        if stamp.begins is not None:
            times.setdefault(step, stamp.begins)
            if len(times) > TIMES_OF_STEPS:
                del times[next(iter(times))]
        known = self.told.setdefault(rank, deque(maxlen=STEPS_AFTER))
        if all(step != other for other, _ in known):
            known.append((step, number))

    def has_outlived(self, sign: str, rank: int | None, number: int) -> bool:
        """Whether well after a line the rank went on; where it never tells of steps, whether all went on that do."""
        if sign in WHILE_IT_RUNS or not self.told:
            return False
        told = [self.told[rank]] if rank in self.told else self.told.values()
        return all(len(steps) == STEPS_AFTER and steps[0][1] > number for steps in told)
