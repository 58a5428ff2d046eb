"""Sets the clock of a single node, which the machine's own clock does not allow."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.node import Node

SOURCE = Path(__file__).with_name("clock.c")
LIBRARY = f"{LIBRARIES}/libtestbed-clock.so"
OFFSET = "/run/clock-offset"  # as in clock.c


def put_library(node: Node) -> None:
    """Programs that preload LIBRARY see the time of `set_clock`; waits until a given time use the machine's clock."""
    (node.root / LIBRARY.lstrip("/")).write_bytes(shared_library(SOURCE, Path(LIBRARY).name))


def settable(node: Node) -> None:
    """Have all programs that start on the node from now on see the time of `set_clock`."""
    put_library(node)
    with (node.root / "etc" / "ld.so.preload").open("a") as file:
        file.write(f"{LIBRARY}\n")


def set_clock(node: Node, offset_s: int) -> None:
    """Set the node's clock off by this much from now on."""
    (node.root / OFFSET.lstrip("/")).write_text(f"{offset_s}\n")
