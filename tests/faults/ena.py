"""What ENA's driver counts of an instance's network allowances."""

from __future__ import annotations

from functools import reduce

from tests.faults.efa_fabric import counting
from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed import ioctls
from tests.testbed.image import NodeImage
from tests.testbed.node import with_file, without_driver, without_file

COUNTERS = f"{ioctls.COUNTERS}/ens32"
ENA = "0000:00:05.0"


def since_boot(image: NodeImage, counter: str, count: int) -> NodeImage:
    """So many packets have exceeded an allowance since the node's boot, a day ago."""
    return with_file(image, f"{COUNTERS}/{counter}", f"{count}\n")


FAULTS = (
    Fault(
        "DNS queries that EC2 drops",
        lambda image: image,
        {"network.ena_allowance": CONCERN},
        "ens32: linklocal_allowance_exceeded ",
        beside=counting("linklocal_allowance_exceeded", 1000, COUNTERS),
    ),
    Fault(
        "connections that EC2 does not track since boot",
        lambda image: since_boot(image, "conntrack_allowance_exceeded", 30_000),
        {"network.ena_allowance": CONCERN},
        "conntrack_allowance_exceeded 30000 since boot, 104 in 300 s; expected at most 100 in 300 s",
    ),
    Fault(
        "more packets and more data than an instance may receive",
        lambda image: since_boot(
            since_boot(image, "pps_allowance_exceeded", 100_000), "bw_in_allowance_exceeded", 100_000
        ),
        {"network.ena_allowance": CONCERN},
        "expected at most 180 and 320 in 300 s",
    ),
    Fault(
        "an ENA driver that reports no allowances",
        lambda image: reduce(
            without_file, (path for path in image.files if path.endswith("_allowance_exceeded")), image
        ),
        {"network.ena_allowance": INCOMPLETE},
        "ens32: its driver does not report bw_in_allowance_exceeded",
    ),
    Fault(
        "an ENA driver that cannot ask its device",
        lambda image: with_file(image, f"{COUNTERS}/pps_allowance_exceeded", "?\n"),
        {"network.ena_allowance": INCOMPLETE},
        "could not be read (EIO)",
    ),
    Fault(
        "an ENA device that is reset meanwhile",
        lambda image: image,
        {"network.ena_allowance": INCOMPLETE},
        "went backwards",
        beside=counting("bw_in_allowance_exceeded", -1, COUNTERS, start=5_000),
    ),
    Fault(
        "an interface that ENA's driver has given up",
        lambda image: without_driver(image, ENA),
        {"network.ena_allowance": NA, "host.device_drivers": FAIL},
        "no ENA network interface",
    ),
)
