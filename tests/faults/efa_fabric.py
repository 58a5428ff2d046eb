"""EFA's access to GPU memory, and its counters."""

from __future__ import annotations

from tests.faults.fault import CONCERN, FAIL, INCOMPLETE, NA, Fault
from tests.testbed.image import NodeImage
from tests.testbed.node import with_file, without_file
from tests.testbed.pci import EFA_NAMES

NAME = EFA_NAMES[5]
DEVICE = f"/sys/class/infiniband/{NAME}"
OF_PORT = f"{DEVICE}/ports/1/hw_counters"
TAINT = "/sys/module/nvidia/taint"

COUNTING = """cd {folder}; n={start}; echo $n >{counter}; echo ready
while :; do n=$((n + {step})); echo $n >.next; mv .next {counter}; sleep 0.02; done"""


def counting(counter: str, step: int, folder: str = OF_PORT, start: int = 0) -> str:
    """A counter that advances by this much fifty times a second."""
    return COUNTING.format(folder=folder, counter=counter, step=step, start=start)


def without_peer_memory(image: NodeImage, taint: str) -> NodeImage:
    """One EFA device cannot access GPU memory; `taint` tells which of NVIDIA's modules is loaded."""
    return with_file(with_file(image, f"{DEVICE}/device/p2p", "\n"), TAINT, f"{taint}\n")


def without_counters(image: NodeImage) -> NodeImage:
    """The EFA driver is too old to have error counters."""
    for name in EFA_NAMES:
        for folder in ("hw_counters", "ports/1/hw_counters"):
            image = without_file(image, f"/sys/class/infiniband/{name}/{folder}")
    return image


def with_links(image: NodeImage, odd: str, lanes: int) -> NodeImage:
    """Every EFA device but one has a PCIe link of 16 lanes."""
    for name in EFA_NAMES:
        at = f"/sys/class/infiniband/{name}/device"
        for kind, width in (("current", lanes if name == odd else 16), ("max", 16)):
            image = with_file(image, f"{at}/{kind}_link_width", f"{width}\n")
            image = with_file(image, f"{at}/{kind}_link_speed", "16.0 GT/s PCIe\n")
    return image


FAULTS = (
    Fault(
        "an EFA device with half of the lanes that the others have",
        lambda image: with_links(image, NAME, 8),
        {"network.nic_link": CONCERN},
        "PCIe x8 at 16 GT/s on 0000:",
    ),
    Fault(
        "an EFA driver without access to GPU memory",
        lambda image: without_peer_memory(image, "POE"),
        {"network.efa_gdr": FAIL, "gpu.peermem": CONCERN},
        f"{NAME}: the EFA driver names no module that gives it GPU memory",
    ),
    Fault(
        "an EFA driver without access to GPU memory beside NVIDIA's open modules",
        lambda image: without_peer_memory(image, "OE"),
        {"network.efa_gdr": CONCERN},
        "DMA-BUF may be in use, but cannot be seen here",
    ),
    Fault(
        "an EFA driver that does not report its access to GPU memory",
        lambda image: without_file(with_file(image, TAINT, "POE\n"), f"{DEVICE}/device/p2p"),
        {"network.efa_gdr": FAIL, "gpu.peermem": CONCERN},
        "does not say which module gives it GPU memory",
    ),
    Fault(
        "an old EFA driver without access to GPU memory",
        lambda image: with_file(
            without_file(with_file(image, TAINT, "POE\n"), f"{DEVICE}/device/p2p"), f"{DEVICE}/device/gdr", "0\n"
        ),
        {"network.efa_gdr": FAIL, "gpu.peermem": CONCERN},
        "names no module that gives it GPU memory",
    ),
    Fault(
        "an EFA driver without access to GPU memory, and an NVIDIA module of unknown licence",
        lambda image: without_file(without_peer_memory(image, ""), TAINT),
        {"network.efa_gdr": INCOMPLETE, "gpu.peermem": INCOMPLETE},
        "with the NVIDIA module loaded",
    ),
    Fault(
        "an EFA device that drops packets",
        lambda image: image,
        {"network.efa_counters": CONCERN},
        f"{NAME}: rx_drops ",
        beside=counting("rx_drops", 1000),
    ),
    Fault(
        "an EFA device that retransmits a lot",
        lambda image: image,
        {"network.efa_counters": CONCERN},
        "expected at most 1000 a second",
        beside=counting("retrans_pkts", 10_000, start=1203),
    ),
    Fault(
        "an EFA device that does not complete commands",
        lambda image: image,
        {"network.efa_counters": FAIL},
        "commands without completion",
        beside=counting("no_completion_cmds", 1, f"{DEVICE}/hw_counters"),
    ),
    Fault(
        "an EFA counter that is reset",
        lambda image: image,
        {"network.efa_counters": INCOMPLETE},
        "rx_drops went backwards",
        beside=counting("rx_drops", -1, start=1_000_000_000),
    ),
    Fault(
        "an EFA counter that is no number",
        lambda image: with_file(image, f"{OF_PORT}/rx_drops", "many\n"),
        {"network.efa_counters": INCOMPLETE},
        "rx_drops could not be read",
    ),
    Fault(
        "an EFA driver without error counters",
        without_counters,
        {"network.efa_counters": NA},
        "its driver has none of these counters",
    ),
    Fault(
        "an EFA device of another generation than its group's",
        lambda image: with_file(image, f"{DEVICE}/device/device", "0xefa1\n"),
        {"network.nic_uniform": CONCERN},
        "EFA devices are 1d0f:efa1, 1d0f:efa2; expected 1d0f:efa2 as on 3 of 4 nodes",
    ),
)
