"""Builds images from files, or from Debian's programs with their libraries, in the format of `ctr images import`."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PYTHON = Path("/usr/bin/python3")
LIBRARY = re.compile(r"(/\S+) \(0x")
LEFT_OUT = {
    *("test", "dist-packages", "idlelib", "ensurepip", "lib2to3", "__pycache__"),
    *("config-3.11-x86_64-linux-gnu", "distutils", "pydoc_data", "tkinter", "turtledemo", "unittest"),
}
OF_SHELL = ("awk", "cat", "cut", "getent", "id", "sed", "sleep", "tail", "timeout", "touch", "uname")
OPEN_MPI = ("mpirun", "orted")
PLUGINS = Path("/usr/lib/x86_64-linux-gnu/openmpi/lib/openmpi3")
TEXTS = Path("/usr/share/openmpi")


def python_files() -> dict[str, Path]:
    """Debian's Python with its library, and a shell; nothing else."""
    ask = "import os, sys; print(os.path.realpath(sys.executable)); print(os.path.dirname(os.__file__))"
    program, library = subprocess.check_output([PYTHON, "-I", "-c", ask], text=True).split()
    modules = [file for file in Path(library).rglob("*") if file.suffix in (".py", ".so")]
    kept = [file for file in modules if not LEFT_OUT & set(file.parts)]
    programs = {"/bin/sh": Path("/bin/sh"), str(PYTHON): Path(program)}
    return programs | with_libraries([*programs.values(), *kept])


def shell_files() -> dict[str, Path]:
    """Further shell commands that benchmarks use."""
    return _programs(OF_SHELL) | {"/etc/passwd": Path("/etc/passwd"), "/etc/nsswitch.conf": Path("/etc/nsswitch.conf")}


def open_mpi_files() -> dict[str, Path]:
    """Debian's Open MPI: the launcher, and what it loads."""
    texts = [file for file in TEXTS.rglob("*") if file.is_file()]
    return _programs(OPEN_MPI) | with_libraries([*PLUGINS.glob("*.so"), *texts])


def program_files(*names: str) -> dict[str, Path]:
    """Other programs of this machine."""
    return _programs(names)


def with_libraries(files: Iterable[Path]) -> dict[str, Path]:
    """These files and the libraries they are linked with, at this machine's paths."""
    by_path = {str(file): file for file in files}
    linked = [file for file in by_path.values() if file.suffix not in (".py", ".txt", ".conf", ".ini", ".h")]
    output = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=False).stdout if linked else ""
    return by_path | {path: Path(path) for path in sorted(set(LIBRARY.findall(output)))}


def _programs(names: Iterable[str]) -> dict[str, Path]:
    files = {name: Path(str(shutil.which(name))) for name in names}
    return {f"/usr/bin/{name}": file.resolve() for name, file in files.items()} | {
        path: file for path, file in with_libraries(files.values()).items() if path not in map(str, files.values())
    }


def archive(files: Mapping[str, Path], names: Sequence[str], **settings: object) -> bytes:
    """An image with only these files, by path, under these names; its user is nobody, as in many images.

    `settings` add to its configuration, such as `Env`.
    """
    layer = _tar({path.lstrip("/"): file.read_bytes() for path, file in files.items()})
    config = json.dumps(
        {
            "architecture": {"aarch64": "arm64"}.get(platform.machine(), "amd64"),
            "os": "linux",
            "config": {"Entrypoint": [next(iter(files))], "User": "65535:65535", **settings},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    named = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": named, "RepoTags": list(names), "Layers": ["layer.tar"]}]).encode()
    return _tar({"manifest.json": manifest, named: config, "layer.tar": layer})


def _tar(files: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return whole.getvalue()
