"""A node whose scripts drain, with a controller that a test steers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults import BY_NAME
from tests.integrations.slurm import controller
from tests.integrations.slurm.controller import with_controller
from tests.integrations.slurm.on_node import node
from tests.integrations.slurm.scripts import DRAIN, eventually
from tests.testbed.image import NodeImage
from tests.testbed.node import Node, healthy_p5

XID = "NVRM: Xid (PCI:0000:53:00): 79, pid=1234, name=python3, GPU has fallen off the bus."
HEALTHY = healthy_p5()
LOST = BY_NAME["a GPU that is lost"].put(HEALTHY)

FULL = "1 of 2 nodes of partition gpu are already drained by clusterproof"
AT_MOST_ONE = DRAIN + "[health_check]\nmax_drained_nodes = 1\n"
OTHER_DRAINED = "gpu002|drained|1|clusterproof: gpu.no_xid: Xid 79"


@contextmanager
def of(
    image: NodeImage, *, keeps_reason: bool = False, toml: str = DRAIN, is_first_run: bool = False
) -> Iterator[Node]:
    with node(with_controller(image, keeps_reason=keeps_reason), toml, is_first_run=is_first_run) as running:
        yield running


def explained(running: Node) -> str:
    return eventually(lambda: text if (text := controller.reason(running)).startswith("clusterproof: ") else "")


def log_an_xid(running: Node) -> None:
    """The driver logs that a GPU has fallen off the bus."""
    file = running.root / "dev/kmsg"
    _, sequence, time_us, _ = file.read_text().splitlines()[-1].split(",", 3)
    with file.open("a") as log:
        log.write(f"3,{int(sequence) + 1},{int(time_us) + 1_000_000},-;{XID}\n")


def other(running: Node, row: str) -> None:
    """Set sinfo's row of the other node."""
    tool = running.root / "usr/bin/sinfo"
    tool.write_text(tool.read_text().replace("gpu002|idle|Unknown|none", row))


def updates(running: Node) -> str:
    file = running.root / controller.FOLDER / "updates"
    return file.read_text() if file.exists() else ""
