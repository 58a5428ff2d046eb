"""The fake NVML library, and where a node has it."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library

SONAME = "libnvidia-ml.so.1"
VALUES_PATH = "/run/fake-nvml.txt"  # where the library reads what it answers
LIBRARY_PATH = f"{LIBRARIES}/{SONAME}"


def fake_nvml() -> bytes:
    """The shared library."""
    return shared_library(Path(__file__).with_name("fake_nvml.c"), SONAME)
