"""Lustre: what this client knows about its servers, and their free space."""

from __future__ import annotations

import re

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import Any
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    known,
    number,
    objects_as,
    optional,
    output,
    read,
    readings,
    table,
    text,
)

MARKS = {  # obd_statfs's os_state, in the letters of lfs df; f (a disk that does not spin) is no fault
    "D": "degraded",
    "R": "read-only",
    "N": "closed to new files",
    "S": "out of space",
    "I": "out of inodes",
}
KIND_IN_NAME = Pattern(r".{0,100}-(OST|MDT)[0-9a-f]{4}\b")
CONNECTED = ("FULL", "IDLE")  # an unused connection becomes idle, and reconnects by itself


@record
class LustreClient(Reported):
    """One connection of this node: to an OST (osc), an MDT (mdc) or the management server (mgc)."""

    kind = Field(text)
    name = Field(text)
    state = Field(text)
    max_rpcs_in_flight = Field(integer)
    max_mod_rpcs_in_flight = Field(integer)
    max_dirty_mb = Field(number)
    lru_max_age_ms = Field(integer)

    @property
    def label(self) -> str:
        """The target's name: `abcdefgh-OST0003`."""
        return re.sub(r"-(osc|mdc)-[0-9a-fx]+\Z", "", self.name)

    @property
    def is_connected(self) -> bool:
        """Whether requests to the target reach its server."""
        return self.state in CONNECTED

    @property
    def is_deactivated(self) -> bool:
        """Whether an administrator has taken the target out of use."""
        return self.state == "DEACTIVATED"


@record
class LustreTarget(Reported):
    """One OST or MDT. Percentages are calculated as by `lfs df`: of the space that users may use."""

    kind = Field(text)
    label = Field(text, "name")
    active = Field(boolean)
    total_kib = Field(number)
    free_kib = Field(number)
    available_kib = Field(number)
    inodes = Field(number)
    inodes_free = Field(number)
    says = Field(optional(text))  # what lfs df prints instead of numbers; the probe does not ask for them
    marks = Field(
        optional(text)
    )  # the letters after the numbers of lfs df: D, R, …; None if there are none, or from the probe

    def is_of(self, kind: str) -> bool:
        """Whether it is an `ost` or an `mdt`: as reported, otherwise by its name."""
        of_name = KIND_IN_NAME.match(readings(self, "label")[0].get("label", ""))
        return known(lambda: self.kind, of_name[1].lower() if of_name else "") == kind

    @property
    def faults(self) -> str:
        """The marks in words: `degraded, read-only`; empty if there are none."""
        return ", ".join(MARKS[mark] for mark in self.marks or "" if mark in MARKS)

    @property
    def used_percent(self) -> float:
        """The percentage of its space in use. Raises Incomplete."""
        used = self.total_kib - self.free_kib
        return _percent(used, used + self.available_kib)

    @property
    def inodes_used_percent(self) -> float:
        """The percentage of its inodes in use. Raises Incomplete."""
        return _percent(self.inodes - self.inodes_free, self.inodes)


@record
class LustreCache(Reported):
    """The page cache of one mount of Lustre: what `max_cached_mb` and `read_ahead_stats` of llite say."""

    name = Field(text)  # `oyuutbev-ffff8e2d4b1c7000`: the file system, and which of its mounts
    limits = Field(text, "max_cached_mb")
    reads = Field(text, "read_ahead_stats")

    @property
    def file_system(self) -> str:
        """`oyuutbev`."""
        return self.name.rpartition("-")[0] or self.name

    @property
    def limit_mib(self) -> int:
        """How much this mount may cache. Raises Incomplete."""
        limit = _LIMIT.search(self.limits)
        if not limit:
            raise Incomplete(f"max_cached_mb of {self.file_system} is not understood: {self.limits[:60]!r}")
        return int(limit[1])

    @property
    def read_ahead(self) -> tuple[int, int]:
        """How many pages were there when they were read, because of read-ahead, and how many not. Raises Incomplete."""
        hits, misses = (sum(map(int, counter.findall(self.reads))) for counter in (_HITS, _MISSES))
        return hits, misses


_LIMIT = Pattern(r"(?m)^(?:max_cached_mb:[ \t]{0,20})?(\d{1,12})[ \t]{0,20}$")  # old clients print the number alone
_HITS = Pattern(r"(?m)^hits\s{1,40}(\d{1,18}) samples")
_MISSES = Pattern(r"(?m)^misses\s{1,40}(\d{1,18}) samples")


@record
class Lustre(Reported):
    """A node's Lustre client."""

    version = Field(text)
    health = Field(text)
    left_out = Field(integer)
    modules = Field(table)
    clients = Field(objects_as(LustreClient), where="lustre: clients")
    caches = Field(objects_as(LustreCache), where="lustre: caches")

    def parameter(self, name: str) -> int | None:
        """A parameter of a loaded kernel module; None if the module is not loaded. Raises Incomplete."""
        value = self.modules.get(name)
        is_absent = isinstance(value, dict) and value.get("error") == "ENOENT"
        return None if is_absent else read(value, optional(integer), f"lustre: {name}")


@record
class CheckpointFolder(Reported):
    """A folder for checkpoints; `exit` and `output` are from `lfs getstripe`, only on Lustre."""

    path = Field(text)
    type = Field(text)
    exit = Field(integer)
    output = Field(output)

    @property
    def stripe_count(self) -> int:
        """The most OSTs over which a new file is striped; -1: all. Raises Incomplete."""
        counts = [int(count) for count in _STRIPE_COUNT.findall(self.output)]
        if self.exit != 0 or not counts:
            raise Incomplete(f"lfs getstripe of {self.path} says {self.output.strip()[-100:]!r}")
        return -1 if -1 in counts else max(counts)


_STRIPE_COUNT = Pattern(r"stripe_count:\s{0,10}(-?\d{1,9})\b")


def _percent(used: float, whole_of_it: float) -> float:
    return 100 * used / whole_of_it if whole_of_it > 0 else 0.0


_UNITS_KIB = {"": 1.0, "B": 1 / 1024, "K": 1.0, "M": 1024.0, "G": 1024.0**2, "T": 1024.0**3, "P": 1024.0**4}
_AMOUNT = r"(\d{1,18}(?:\.\d{1,3})?)([BKMGTP]?)"
_AMOUNTS = rf"\s+{_AMOUNT}\s+{_AMOUNT}\s+{_AMOUNT}\s+"
_LINE = Pattern(
    rf"(\S{{1,100}})_UUID{_AMOUNTS}(?:\d{{1,3}}%|-)\s+\S{{1,1000}}\[(OST|MDT):\d+\](?: ([A-Za-z]{{1,8}})\Z)?"
)
_INSTEAD = Pattern(r"((?:\S{1,90}-)?(OST|MDT)[0-9a-f]{4})(?:_UUID)?\s*: (\S.{2,80})\Z", re.IGNORECASE)
_INACTIVE = "inactive device"
LONGEST_LINE = 2048


def parse_lfs_df(text: str) -> list[dict[str, Any]]:
    """The targets in the output of `lfs df`, with or without -h or -i, in the form of the probe's report."""
    targets: dict[str, dict[str, Any]] = {}
    counts_inodes = False
    for line in text.splitlines():
        line = line[:LONGEST_LINE].strip()
        if line.startswith("UUID"):
            counts_inodes = "inodes" in line.lower().split()
        elif row := _LINE.match(line):
            values = _inodes(row) if counts_inodes else _space(row)
            marks = {"marks": row[9]} if row[9] else {}
            target = targets.setdefault(row[1], {"kind": row[8].lower(), "name": row[1], "active": True})
            target.update({**values, **marks})
        elif row := _INSTEAD.match(line):
            is_active = not row[3].lower().startswith(_INACTIVE)
            says = {"says": row[3]} if is_active else {}
            targets[row[1]] = {"kind": row[2].lower(), "name": row[1], "active": is_active, **says}
    return list(targets.values())


def _space(row: re.Match[str]) -> dict[str, float]:
    total, used, available = (_amount(row, group) for group in (2, 4, 6))
    return {"total_kib": total, "free_kib": total - used, "available_kib": available}


def _inodes(row: re.Match[str]) -> dict[str, float]:
    total, free = (_amount(row, group) * (1024 if row[group + 1] else 1) for group in (2, 6))
    return {"inodes": total, "inodes_free": free}


def _amount(row: re.Match[str], group: int) -> float:
    return float(row[group]) * _UNITS_KIB[row[group + 1]]
