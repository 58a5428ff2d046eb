"""What `ncclras` printed of a job that hung: ranks behind the others, and processes that do not answer.

A rank's number is one of its communicator; it is that of the job only in a communicator of all its GPUs. RAS looks
while collectives run, so that healthy ranks may be apart by one operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterproof.plugins.case import Lead, label
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.core.message import number_of

APART = 2  # operations by which a rank is behind
_REPORT = "Job summary"  # how each report begins, behind the versions
_BEGINS = re.compile(r"(?m)^Communicators\.\.\. \(\d{1,9}\.\d{1,9}s\)\r?$")
_TOTALS = re.compile(r"\s*(?:\d{1,9}(?:-\d{1,9})?\s+){4}(\d{1,9})\s*")  # nodes, processes, GPUs; all processes, GPUs
_GROUP = re.compile(r"\s*(\d{1,9})(?:\s+\d{1,9}(?:-\d{1,9})?){3}\s+(\d{1,9})\s+\d{1,9}\s+[A-Z]{2,20}\b")
_COMMUNICATOR = re.compile(r"\s*#(\d{1,9})-\d{1,9} \(")
_COUNTED = re.compile(r"\s*\d{1,9} ranks have (?:launched up to operation (\d{1,18})|not launched any operations)")
_RANK = re.compile(
    r"\s*Rank (\d{1,9})(?: has (?:launched up to operation (\d{1,18})|not launched any operations))?"
    r" -- GPU \S{1,40} managed by process \d{1,9} on node (\S{1,255})"
)
_PROCESS = re.compile(r"\s*Process (\d{1,9}) on node (\S{1,255}) managing GPU (\S{1,40})")
_MISSING = re.compile(r"\s*The missing ranks?: (\d{1,9})\s*$")
SILENT = "gave no answer to NCCL's RAS"


def is_in(text: str) -> bool:
    """Whether a file has output of ncclras: alone, or in a job's log that asks it again and again."""
    return bool(_BEGINS.search(text))


def read(text: str, name: str, builder: CaseBuilder) -> None:
    """Add the ranks that RAS names last, and processes whose rank it does not say as something missing."""
    begins = max((found.start() for found in _BEGINS.finditer(text)), default=0)
    text = text[max(0, text.rfind(_REPORT, 0, begins)) :]
    world, sizes = _sizes(text)
    counts: dict[int, tuple[int, str]] = {}  # by rank of the job: operations launched, and node
    most, operations, is_of_job = 0, 0, True
    for line in text.splitlines():
        if found := _COMMUNICATOR.match(line):
            is_of_job = sizes.get(int(found[1])) == world
        elif found := _COUNTED.match(line):
            operations = int(found[1] or 0)
            most = max(most, operations) if is_of_job else most
        elif found := _RANK.match(line):
            launched = int(found[2] or 0) if " has " in found[0] else operations
            most = max(most, launched) if is_of_job else most
            if is_of_job:
                counts[int(found[1])] = launched, label(found[3])
        elif found := _PROCESS.match(line):
            process = f"process {found[1]} on {found[2]}, GPU {found[3]}"
            builder.lack(f"{name}: the rank of {process}, which {SILENT}")
        elif (found := _MISSING.match(line)) and is_of_job:
            builder.ras_leads.append(Lead(int(found[1]), SILENT))
    builder.ras_leads.extend(_behind(counts, most))
    builder.count("output of ncclras")


def _sizes(text: str) -> tuple[int | None, dict[int, int]]:
    """The job's GPUs, and by group of communicators the ranks in each."""
    lines = text.splitlines()
    totals = next(filter(None, map(_TOTALS.fullmatch, lines)), None)
    groups = filter(None, map(_GROUP.match, lines))
    return int(totals[1]) if totals else None, {int(found[1]): int(found[2]) for found in groups}


def _behind(counts: dict[int, tuple[int, str]], most: int) -> Iterator[Lead]:
    for rank, (launched, node) in sorted(counts.items()):
        if most - launched >= APART:
            words = f"had launched {number_of(most - launched, 'operation')} fewer than others, according to NCCL's RAS"
            yield Lead(rank, words, node if not node.replace(".", "").isdecimal() else "")
