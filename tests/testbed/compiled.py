"""Compiles the testbed's small shared libraries, including one that needs a newer glibc."""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

LIBRARIES = f"/usr/lib/{platform.machine()}-linux-gnu"  # in the loader's default search path


_compiler = threading.Lock()  # nodes that start together wait for one compilation


def shared_library(source: Path, soname: str, without: tuple[str, ...] = ()) -> bytes:
    """Compile a shared library from `source`, `without` some functions; as `program` does."""
    with _compiler:
        return _library(source, soname, without)


@functools.cache
def _library(source: Path, soname: str, without: tuple[str, ...]) -> bytes:
    if not shutil.which("gcc"):
        return b""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, soname)
        command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{soname}"]
        command += [f"-D{name}=gone_{name}" for name in without]
        subprocess.run([*command, "-o", str(built), str(source)], check=True)
        return built.read_bytes()


def program(source: Path, compiler: str = "gcc") -> bytes:
    """Compile a program from `source`; raises CalledProcessError if that fails.

    Empty without a compiler, since images are described before the tests that need them are skipped.
    """
    with _compiler:
        return _program(source, compiler)


@functools.cache
def _program(source: Path, compiler: str) -> bytes:
    if not shutil.which(compiler):
        return b""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, source.stem)
        subprocess.run([compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(built), str(source)], check=True)
        return built.read_bytes()


COMPILE = ("gcc", "-shared", "-fPIC", "-nostdlib")
ABSENT = "libhwloc.so.99"


@functools.cache
def of_absent_library() -> bytes:
    """A library that needs a library found nowhere."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "empty.c").write_text("")
        subprocess.run([*COMPILE, f"-Wl,-soname,{ABSENT}", "-o", ABSENT, "empty.c"], check=True, cwd=folder)
        command = ["-Wl,--no-as-needed", "-o", "plugin.so", "empty.c", f"./{ABSENT}"]
        subprocess.run([*COMPILE, *command], check=True, cwd=folder)
        return Path(folder, "plugin.so").read_bytes()


NEEDED = "GLIBC_2.99"


@functools.cache
def of_newer_glibc() -> bytes:
    """A library linked with a glibc that exists nowhere else."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "glibc.c").write_text("void from_the_future(void) {}\n")
        Path(folder, "versions").write_text(f"{NEEDED} {{ from_the_future; }};\n")
        Path(folder, "plugin.c").write_text("void from_the_future(void);\nvoid use(void) { from_the_future(); }\n")
        versions = ("-Wl,-soname,libc.so.6", "-Wl,--version-script=versions")
        subprocess.run([*COMPILE, *versions, "-o", "libc.so.6", "glibc.c"], check=True, cwd=folder)
        soname = "-Wl,-soname,libnccl-net.so"
        subprocess.run([*COMPILE, soname, "-o", "plugin.so", "plugin.c", "./libc.so.6"], check=True, cwd=folder)
        return Path(folder, "plugin.so").read_bytes()
