"""Disk health and software RAID, from captures only: no collector reads them."""

from __future__ import annotations

from collections.abc import Iterator

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.evidence.fact import CollectorData, collected_by
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    known,
    objects,
    optional,
    table,
    text,
    texts,
)

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

# The bits of the critical warning in NVMe's SMART log.
HOT, DEGRADED = 1, 2
CRITICAL = {
    0: "few spare blocks left",
    DEGRADED: "degraded by media errors",
    3: "read-only",
    4: "the backup of its cache failed",
    5: "its persistent memory is read-only",
}
ENDURANCE_PERCENT = 100  # of the endurance that the manufacturer expects; some disks then set the bit DEGRADED
BEARS = {"raid0": 0, "linear": 0, "raid4": 1, "raid5": 1, "raid6": 2}  # disks it can lose; mirrors, all but one


@record
class DiskHealth(Reported):
    """SMART values of one disk; None if the output lacks them."""

    name = Field(text)
    serial = Field(optional(text))
    passed = Field(optional(boolean))
    said = Field(optional(text))
    failing = Field(optional(texts))  # attributes of ATA below their thresholds
    critical_warning = Field(optional(integer))
    media_errors = Field(optional(integer))
    used_percent = Field(optional(integer))
    spare_percent = Field(optional(integer))
    least_spare_percent = Field(optional(integer))

    @property
    def label(self) -> str:
        """`nvme1`; the serial number if the output does not name the disk. Raises Incomplete."""
        return self.name or (f"the disk {self.serial}" if self.serial else "a disk")

    @property
    def faults(self) -> Iterator[str]:
        """Why the disk is about to fail, as it reports. Raises Incomplete."""
        warnings = self.critical_warning or 0
        harmless = 1 << HOT | (1 << DEGRADED if known(lambda: self._is_worn_out, False) else 0)
        faulty = warnings & ~harmless
        if self.passed is False and (faulty or not warnings):
            yield f"its self-assessment failed ({self.said})" if self.said else "its self-assessment failed"
        yield from (text for bit, text in CRITICAL.items() if faulty & 1 << bit)
        yield from (f"{name} is below its threshold" for name in self.failing or ())

    @property
    def _is_worn_out(self) -> bool:
        """Whether it has used up its endurance without an error, or a spare block if errors were not printed."""
        has_no_error = self.media_errors == 0 or (self.media_errors is None and self.spare_percent == 100)
        return has_no_error and (self.used_percent or 0) >= ENDURANCE_PERCENT

    def worn(self, most_percent: float) -> Iterator[str]:
        """Why the disk should be watched: errors, heat, wear. Raises Incomplete."""
        if self.said and self.passed is None:
            yield f"it says {self.said}"
        if (self.critical_warning or 0) & 1 << HOT:
            yield "too hot or too cold"
        if self.media_errors:
            yield f"{self.media_errors} media errors"
        if (self.used_percent or 0) >= most_percent:
            yield f"{self.used_percent} % of its endurance used"
        spare, least = self.spare_percent, self.least_spare_percent
        if spare is not None and least is not None and spare < least:
            yield f"{spare} % spare blocks"


@record
class DiskArray(Reported):
    """A software RAID array; `disks` and `working` are None if unknown."""

    name = Field(text)
    level = Field(text)
    is_active = Field(boolean)
    disks = Field(optional(integer))
    working = Field(optional(integer))
    failed = Field(texts)
    has_failed = Field(optional(boolean), "is_lost")

    @property
    def missing(self) -> str:
        """`nvme2n1`, or `2 of 4 disks (nvme2n1 failed)`; empty where none is missing. Raises Incomplete."""
        failed, missing = ", ".join(self.failed), self._missing
        if missing <= len(self.failed):
            return failed
        return f"{missing} of {self.disks} disks" + (f" ({failed} failed)" if failed else "")

    @property
    def _missing(self) -> int:
        return (self.disks or 0) - (self.working or 0) if self.working is not None else 0

    @property
    def is_lost(self) -> bool:
        """Whether the array has lost more disks than it can bear. Raises Incomplete."""
        bears, missing = BEARS.get(self.level), self._missing if self.working is not None else len(self.failed)
        is_beyond = (bears is not None and missing > bears) or (bears == 0 and self.failed)
        return bool(self.has_failed or is_beyond or (self.disks and self.working == 0 and self.is_active))


@collected_by("nvme")
def disk_health(_node: Node, nvme: CollectorData) -> tuple[DiskHealth, ...]:
    """The disks whose SMART log was captured, if any. Raises Incomplete."""
    smart = nvme.get("smart", optional(table)) or {}
    return tuple(map(DiskHealth, objects(smart.get("logs", []))))


@collected_by("nvme")
def disk_arrays(_node: Node, nvme: CollectorData) -> tuple[DiskArray, ...]:
    """The software RAID arrays that were captured, if any. Raises Incomplete."""
    return tuple(map(DiskArray, nvme.get("arrays", optional(objects)) or ()))
