"""When something was, by the boot and the seconds since it: no setting of a clock changes that."""

from __future__ import annotations

import time

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id() -> str:
    """This boot's id; empty where the kernel does not show it."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def since_boot_s() -> float:
    """Seconds since boot, which setting a clock does not change."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age_of(boot: object, at: object) -> float | None:
    """How many seconds ago that moment of a boot was; None where it was in another boot, or is none."""
    if boot != boot_id() or isinstance(at, bool) or not isinstance(at, (int, float)):
        return None
    age_s = since_boot_s() - at
    return age_s if age_s >= 0 else None
