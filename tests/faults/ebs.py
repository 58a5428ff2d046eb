"""EBS volumes that reach their limits."""

from __future__ import annotations

from tests.faults.fault import CONCERN, INCOMPLETE, NA, Fault
from tests.testbed import ioctls
from tests.testbed.image import NodeImage
from tests.testbed.node import with_file, without_file

CONTROLLER = "/sys/class/nvme/nvme0"


def with_page(image: NodeImage, page: bytes) -> NodeImage:
    """The root volume reports this in its log page."""
    return with_file(image, f"{ioctls.PAGES}/nvme0", page)


FAULTS = (
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
