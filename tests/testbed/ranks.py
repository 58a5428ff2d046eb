"""Nodes with the stand-in for nccl-tests, that mpirun and srun start as ranks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.testbed.image import NodeImage

ALL_REDUCE = "/opt/nccl-tests/build/all_reduce_perf"


def with_all_reduce(image: NodeImage, path: str = ALL_REDUCE) -> NodeImage:
    """The image with all_reduce_perf where DLAMIs have it."""
    program = Path(__file__).with_name("tools") / "all_reduce_between_nodes"
    return replace(image, tools={**image.tools, path: program.read_text()})
