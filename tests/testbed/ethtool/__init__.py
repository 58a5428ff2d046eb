"""What the drivers of a fake node's interfaces count, by ethtool's ioctl."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.image import Content

SONAME = "libtestbed-ethtool.so"
PRELOAD = "/etc/ld.so.preload"
FOLDER = "/run/fake-ethtool"
OF_ENA = (
    "bw_in_allowance_exceeded",
    "bw_out_allowance_exceeded",
    "pps_allowance_exceeded",
    "conntrack_allowance_exceeded",
    "linklocal_allowance_exceeded",
    "conntrack_allowance_available",
    "total_resets",
)


def ena_counters(name: str) -> dict[str, Content]:
    """An interface of ENA that has exceeded nothing."""
    counts = dict.fromkeys(OF_ENA, 0) | {"conntrack_allowance_available": 51286}
    return {f"{FOLDER}/{name}/{counter}": f"{count}\n" for counter, count in counts.items()}


def ethtool_files(files: Mapping[str, Content]) -> dict[str, Content]:
    """The files that make every program believe what these files say of interfaces, where there are any."""
    if not any(path.startswith(f"{FOLDER}/") for path in files):
        return {}
    library = shared_library(Path(__file__).with_name("fake_ethtool.c"), SONAME)
    return {f"{LIBRARIES}/{SONAME}": library, PRELOAD: f"{files[PRELOAD]}{LIBRARIES}/{SONAME}\n"}
