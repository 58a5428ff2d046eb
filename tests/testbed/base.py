"""The base system of a fake node: programs of this machine that every node has, and nothing else installed here."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.testbed.compiled import LIBRARIES

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "clusterproof" / "testbed"
MACHINE = Path("/")  # for nodes that run this machine's programs: Slurm, MPI, this checkout
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # where system packages install programs
PROGRAMS = """
    awk base64 basename bash cat chgrp chmod chown cksum cmp comm cp cut date dd df diff dirname dmesg du echo env
    expr fallocate false find findmnt flock free fsfreeze getent grep groups gunzip gzip head hostname id install ip
    ipcs join kill ldconfig ln logger ls lsblk mkdir mkfifo mknod mktemp mount mountpoint mv nice nohup nproc nsenter od
    pgrep pidof pkill printenv printf prlimit ps pwd readlink realpath rm rmdir scp sed seq setpriv setsid sh sha256sum
    sleep sort split ss ssh ssh-keygen sshd stat stdbuf stty sync sysctl tac tail tar taskset tc tee test timeout
    top touch tr true truncate tty umount uname uniq unlink unshare unxz uptime wc which whoami xargs xz yes
"""
BESIDES = (  # loaded without being linked, and the links that lead to them
    *(f"{LIBRARIES}/{name}" for name in ("libgcc_s.so.1", "libnss_dns.so.2", "libnss_files.so.2")),
    *("/bin", "/sbin", "/lib", "/lib64", "/usr/bin/python3"),
)
WHOLE = ("/usr/lib/openssh", "/usr/lib/locale/C.utf8")
OF_OTHERS = ("site-packages", "dist-packages", "sitecustomize.py", "test", "config-*")  # in Python's library folder
FOLDERS = """
    boot dev etc/ld.so.conf.d home media mnt opt proc root run srv sys tmp usr/local/bin usr/local/lib usr/local/sbin
    usr/share var/cache var/lib var/log var/spool var/tmp
"""
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
}
UNUSED_S = 30 * 86_400.0
BENEATH = (  # paths that a node with the whole machine beneath does not have
    *("usr/local/cuda*", "etc/ld.so.conf.d/*cuda*", ".dockerenv", "run/.containerenv", "var/run/secrets/*"),
    *("usr/bin/fi_info", "usr/bin/fi_pingpong", "usr/bin/fio", "usr/bin/stress-ng"),
    *("root/.aws", "root/.ssh/id_*", "home/*", "var/crash/*", "var/lib/dpkg/updates/*", "var/lib/cloud/data"),
    *("var/lib/cloud/instance", "etc/ssh/ssh_host_*_key", "lib/modules/*"),
)


def hidden() -> list[str]:
    """The paths of this machine that a node with the whole machine beneath does not have."""
    return [str(path) for pattern in BENEATH for path in MACHINE.glob(pattern)]


@functools.cache
def system() -> Path:
    """The folder with the base system, made once and again when this machine's programs change."""
    programs = [path for name in PROGRAMS.split() if (path := shutil.which(name, path=PATH))]
    looked_at = {path: path.stat() for path in (*map(Path, programs), python())}
    state = [(str(path), status.st_size, status.st_mtime_ns) for path, status in looked_at.items()]
    folder = CACHE / hashlib.sha256(repr(state).encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="unfinished-") as unfinished:
            _fill(Path(unfinished, "root"), programs, python())
            with contextlib.suppress(OSError):  # another process has made it meanwhile
                Path(unfinished, "root").rename(folder)
        _remove_unused()
    os.utime(folder)
    return folder


def _remove_unused() -> None:
    """Remove base systems that have long been unused, such as those from before an upgrade."""
    for folder in CACHE.iterdir():
        with contextlib.suppress(FileNotFoundError):  # unfinished, or being removed by another process
            if time.time() - folder.stat().st_mtime > UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)


def python() -> Path:
    """The program that nodes have as /usr/bin/python3."""
    return Path("/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable).resolve()


def _fill(root: Path, programs: list[str], interpreter: Path) -> None:
    modules = _standard_library(interpreter)
    shutil.copytree(modules, _at(root, modules), symlinks=True, ignore=shutil.ignore_patterns(*OF_OTHERS))
    linked = [*programs, str(interpreter)]
    for path in (*BESIDES, *WHOLE, *linked, *_libraries([*linked, *map(str, modules.glob("lib-dynload/*.so"))])):
        _copy(path, root)
    for name in FOLDERS.split():
        Path(root, name).mkdir(parents=True, exist_ok=True)
    for folder, _, _ in os.walk(root):
        Path(folder).chmod(0o755)  # whatever this process's umask is
    for name, mode in {"tmp": 0o1777, "var/tmp": 0o1777, "root": 0o700}.items():
        Path(root, name).chmod(mode)
    for name, text in FILES.items():
        Path(root, name).write_text(text)
        Path(root, name).chmod(0o644)


def _standard_library(interpreter: Path) -> Path:
    """The folder of Python's own modules."""
    code = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    return Path(subprocess.run([interpreter, "-ISc", code], capture_output=True, text=True, check=True).stdout.strip())


def _libraries(linked: Iterable[str]) -> set[str]:
    """The libraries that the loader loads for these programs, including the loader; a script needs none."""
    output = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=False, env={"PATH": PATH}).stdout
    return set(re.findall(r"(/\S+) \(0x", output))


def _copy(path: str, root: Path) -> None:
    """Copy what is at this path, if anything, and every link on the way."""
    for step in _steps(Path(path)):
        to = _at(root, step)
        if os.path.lexists(to):
            continue
        to.parent.mkdir(parents=True, exist_ok=True)
        if step.is_symlink():
            to.symlink_to(step.readlink())
        elif step.is_file():
            shutil.copy2(step, to)
        elif str(step) in WHOLE and step.is_dir():
            shutil.copytree(step, to, symlinks=True)


def _steps(path: Path) -> Iterator[Path]:
    """Each link along a path, then the place where it ends."""
    at, parts = Path("/"), list(path.parts[1:])
    while parts:
        at /= parts.pop(0)
        if at.is_symlink():
            yield at
            leads = Path(os.path.normpath(at.parent / at.readlink()))
            at, parts = Path("/"), [*leads.parts[1:], *parts]
    yield at


def _at(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")
