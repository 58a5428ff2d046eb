"""AWS limits of an instance: network allowances as counted by ENA's driver, and EBS volumes."""

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
    """This many packets exceeded an allowance since the node's boot a day ago."""
    return with_file(image, f"{COUNTERS}/{counter}", f"{count}\n")


CONTROLLER = "/sys/class/nvme/nvme0"


def with_page(image: NodeImage, page: bytes) -> NodeImage:
    """The root volume's log page reports this."""
    return with_file(image, f"{ioctls.PAGES}/nvme0", page)


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
    Fault(
        "a root volume that is asked for more than its IOPS",
        lambda image: with_page(image, ioctls.ebs_page(8_000_000_000, 0, 0, 0)),
        {"storage.ebs_limits": CONCERN},
        "nvme0 (vol-0546d3c3b0af0bf6d): above the volume's IOPS for 8000 s, 56 s in 600 s; expected at most 50 s",
    ),
    Fault(
        "volumes that are asked for more than their instance's throughput",
        lambda image: with_page(image, ioctls.ebs_page(0, 0, 0, 9_000_000_000)),
        {"storage.ebs_limits": CONCERN},
        "above the instance's throughput for 9000 s",
    ),
    Fault(
        "a volume of EBS without such a page",
        lambda image: with_page(image, b""),
        {"storage.ebs_limits": INCOMPLETE},
        "could not be read (ENOTSUP)",
    ),
    Fault(
        "a volume of EBS whose page is another",
        lambda image: with_page(image, ioctls.ebs_page(magic=0)),
        {"storage.ebs_limits": INCOMPLETE},
        "could not be read (EINVAL)",
    ),
    Fault(
        "a node whose root is no volume of EBS",
        lambda image: without_file(image, CONTROLLER),
        {"storage.ebs_limits": NA},
        "no EBS volume",
    ),
)
