"""File systems that a fake node shows as mounted, though this machine cannot mount them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.testbed.compiled import LIBRARIES, shared_library
from tests.testbed.image import Content, Folder, text_of

SONAME = "libtestbed-mountinfo.so"
PRELOAD = "/etc/ld.so.preload"


def mountinfo_files(lines: tuple[str, ...], files: Mapping[str, Content]) -> dict[str, Content]:
    """Files that put these lines first in every program's /proc/self/mountinfo, and the mounts' folders.

    `files` exist already: a file at a mount point stays.
    """
    if not lines:
        return {}
    library = shared_library(Path(__file__).with_name("fake_mountinfo.c"), SONAME)
    folders: dict[str, Content] = {path: Folder() for line in lines if (path := line.split(" ")[4]) not in files}
    programs: dict[str, Content] = {
        f"{LIBRARIES}/{SONAME}": library,
        PRELOAD: f"{text_of(files[PRELOAD])}{LIBRARIES}/{SONAME}\n",
        "/run/fake-mountinfo.txt": "".join(f"{line}\n" for line in lines),
    }
    return folders | programs
