"""A library of a newer system: what it needs of glibc, this machine's does not have."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

NEEDED = "GLIBC_2.99"
COMPILE = ("gcc", "-shared", "-fPIC", "-nostdlib")


@functools.cache
def of_newer_glibc() -> bytes:
    """The library, linked with a glibc that exists nowhere else."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "glibc.c").write_text("void from_the_future(void) {}\n")
        Path(folder, "versions").write_text(f"{NEEDED} {{ from_the_future; }};\n")
        Path(folder, "plugin.c").write_text("void from_the_future(void);\nvoid use(void) { from_the_future(); }\n")
        versions = ("-Wl,-soname,libc.so.6", "-Wl,--version-script=versions")
        subprocess.run([*COMPILE, *versions, "-o", "libc.so.6", "glibc.c"], check=True, cwd=folder)
        soname = "-Wl,-soname,libnccl-net.so"
        subprocess.run([*COMPILE, soname, "-o", "plugin.so", "plugin.c", "./libc.so.6"], check=True, cwd=folder)
        return Path(folder, "plugin.so").read_bytes()
