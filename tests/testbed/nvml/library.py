"""The fake NVML library, and where a node has it."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library

SONAME = "libnvidia-ml.so.1"
VALUES_PATH = "/run/fake-nvml.txt"  # where the library reads what it answers
SOURCES = tuple(Path(__file__).with_name(name) for name in ("fake_nvml.c", "gpm.h", "links.h", "repair.h", "values.h"))
LIBRARY_PATH = f"{LIBRARIES}/{SONAME}"


def fake_nvml(without: tuple[str, ...] = ()) -> bytes:
    """The shared library, `without` the functions that an older driver does not have."""
    return shared_library(SOURCES[0], SONAME, without)


def answer_now(root: Path, text: str) -> None:
    """From now on the library of the node at `root` answers so, also to who has it loaded."""
    values = root / VALUES_PATH.lstrip("/")
    new = values.with_suffix(".new")
    new.write_text(text)
    new.replace(values)
