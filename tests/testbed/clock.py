"""The clock of a node, which its administrator sets: that of this machine cannot be set for one node alone."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.node import Node

SOURCE = Path(__file__).with_name("clock.c")
LIBRARY = f"{LIBRARIES}/libtestbed-clock.so"
OFFSET = "/run/clock-offset"  # as clock.c has it


def put_library(node: Node) -> None:
    """Programs that preload LIBRARY see the time that `set_clock` sets; they wait until a time of the machine's."""
    (node.root / LIBRARY.lstrip("/")).write_bytes(shared_library(SOURCE, Path(LIBRARY).name))


def settable(node: Node) -> None:
    """All programs that start on the node from now on see the time that `set_clock` sets."""
    put_library(node)
    with (node.root / "etc" / "ld.so.preload").open("a") as file:
        file.write(f"{LIBRARY}\n")


def set_clock(node: Node, offset_s: int) -> None:
    """The node's clock is off by so much from now on."""
    (node.root / OFFSET.lstrip("/")).write_text(f"{offset_s}\n")
