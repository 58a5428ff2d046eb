"""The resource limits and the clock quality that a fake node's programs see."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.image import Content

SONAME = "libtestbed-memlock.so"
CLOCK_PATH = "/run/fake-clock.txt"
ROW = "{:<25} {:<20} {:<20} {:<10}"  # of /proc/PID/limits
ROWS = {  # Linux's number and the words in /proc/PID/limits, by the name in limits.conf
    "stack": (3, "Max stack size", "bytes"),
    "nproc": (6, "Max processes", "processes"),
    "nofile": (7, "Max open files", "files"),
    "memlock": (8, "Max locked memory", "bytes"),
}


def limits_files(limits: Mapping[str, str]) -> dict[str, Content]:
    """Files that make getrlimit return these limits ("unlimited" or a number, by name) in every program."""
    library = shared_library(Path(__file__).with_name("fake_memlock.c"), SONAME)
    return {
        f"{LIBRARIES}/{SONAME}": library,
        "/etc/ld.so.preload": f"{LIBRARIES}/{SONAME}\n",
        "/run/fake-limits.txt": "".join(f"{ROWS[name][0]} {limit}\n" for name, limit in limits.items()),
    }


def limits_row(name: str, limit: str) -> str:
    """The corresponding row of /proc/PID/limits."""
    _, description, unit = ROWS[name]
    return ROW.format(description, limit, limit, unit)
