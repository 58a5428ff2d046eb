"""How much memory the programs of a fake node believe that they may lock."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.image import Content

SONAME = "libtestbed-memlock.so"
ROW = "{:<25} {:<20} {:<20} {:<10}"  # of /proc/PID/limits


def memlock_files(limit: str) -> dict[str, Content]:
    """The files that make `limit` ("unlimited" or bytes) what getrlimit tells every program."""
    library = shared_library(Path(__file__).with_name("fake_memlock.c"), SONAME)
    return {
        f"{LIBRARIES}/{SONAME}": library,
        "/etc/ld.so.preload": f"{LIBRARIES}/{SONAME}\n",
        "/run/fake-memlock.txt": f"{limit}\n",
    }


def limits_row(limit: str) -> str:
    """The row of /proc/PID/limits that says the same."""
    return ROW.format("Max locked memory", limit, limit, "bytes")
