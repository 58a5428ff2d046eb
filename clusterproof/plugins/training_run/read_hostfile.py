"""Hostfiles, as mpirun and DeepSpeed have them: `gpu001 slots=8`, a line for each node, in the order of the ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterproof.plugins.training_run.lines import Lines
from clusterproof.plugins.training_run.records import RunError
from clusterproof.plugins.training_run.seats import Slots
from clusterproof.plugins.training_run.unpacked import RunFile

MAX_SLOTS = 1_024
EXPECTED = "expected NODE slots=8"
_LINE = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]{0,199})\s+slots\s*=\s*([0-9]{1,4})(?:\s+[\w-]+=\S+)*\s*(?:#.*)?$")
_NOTHING = re.compile(r"\s*(?:#.*)?$")


def is_hostfile(head: bytes) -> bool:
    """Whether a file that begins so is one."""
    lines = head.decode("utf-8", "replace").splitlines()
    first = next((line for line in lines if not _NOTHING.match(line)), "")
    return bool(_LINE.match(first))


def read_hostfile(path: RunFile) -> Iterator[Slots]:
    """Its nodes. Raises RunError."""
    lines = Lines(path)
    for line in lines:
        found = _LINE.match(line)
        if found and 0 < int(found[2]) <= MAX_SLOTS:
            yield Slots(found[1], int(found[2]))
        elif not _NOTHING.match(line):
            raise RunError(f"{lines.where}: {line!r:.60} is no line of a hostfile; {EXPECTED}")
