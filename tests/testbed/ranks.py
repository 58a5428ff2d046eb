"""Nodes with a program that mpirun and srun start as ranks: nccl-tests without GPUs, linked with a real MPI."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.testbed.compiled import program
from tests.testbed.image import File, NodeImage

ALL_REDUCE = "/opt/nccl-tests/build/all_reduce_perf"


def with_all_reduce(image: NodeImage) -> NodeImage:
    """The image with this machine's MPI, and all_reduce_perf at its path on DLAMIs."""
    built = program(Path(__file__).with_name("tools") / "all_reduce.c", compiler="mpicc")
    return replace(image, files={**image.files, ALL_REDUCE: File(built, 0o755)}, whole_machine=True)
