"""This machine's fi_pingpong on a fake node, where it waits instead of polling, and finds no kernel symbols to read."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.image import Content, File, NodeImage

FI_PINGPONG = "/opt/amazon/efa/bin/fi_pingpong"  # where EFA's installer puts it
PROGRAM = "/usr/lib/testbed/fi_pingpong"
SOURCE = Path(__file__).with_name("waits.c")
LIBRARY = f"{LIBRARIES}/libtestbed-waits.so"
WAITING = f'#!/bin/sh\nLD_PRELOAD={LIBRARY} exec {PROGRAM} "$@"\n'


def with_fi_pingpong(image: NodeImage) -> NodeImage:
    """The image with this machine's fi_pingpong, if there is one."""
    path = shutil.which("fi_pingpong")
    if not path:
        return replace(image, whole_machine=True)
    files: dict[str, Content] = {
        FI_PINGPONG: File(WAITING, 0o755),
        PROGRAM: File(Path(path).read_bytes(), 0o755),
        LIBRARY: shared_library(SOURCE, Path(LIBRARY).name),
    }
    symbols: dict[str, Content] = {"kallsyms": ""}  # of the kernel: libfabric looks for a driver's in all of them
    return replace(image, files=image.files | files, proc=image.proc | symbols, whole_machine=True)
