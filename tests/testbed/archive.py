"""Writes a node image as the tar archive that the node is unpacked from."""

from __future__ import annotations

import functools
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

from tests.testbed.base import MACHINE, hidden, python, system
from tests.testbed.compiled import LIBRARIES
from tests.testbed.dcb import dcb_files
from tests.testbed.image import ABSENT, Content, Device, Entry, File, Folder, Link, NodeImage, Service
from tests.testbed.ioctls import ioctl_files
from tests.testbed.memlock import ROWS, limits_files, limits_row
from tests.testbed.mountinfo import mountinfo_files
from tests.testbed.nvml.values import LIBRARY_PATH, VALUES_PATH, fake_nvml

UNITS_PATH = "/usr/lib/testbed/units"  # read by the fake systemctl
OF_DRIVERS = ("driver", "fs")  # in /proc: state of this machine's drivers and file systems
END_OF_ARCHIVE = bytes(2 * tarfile.BLOCKSIZE)

DEVICES: dict[str, Content] = {
    "/dev/null": Device(1, 3),
    "/dev/zero": Device(1, 5),
    "/dev/full": Device(1, 7),
    "/dev/random": Device(1, 8),
    "/dev/urandom": Device(1, 9),
    "/dev/tty": Device(5, 0),
    "/dev/ptmx": Link("pts/ptmx"),
    "/dev/fd": Link("/proc/self/fd"),
    "/dev/stdin": Link("/proc/self/fd/0"),
    "/dev/stdout": Link("/proc/self/fd/1"),
    "/dev/stderr": Link("/proc/self/fd/2"),
    "/dev/pts": Folder(),
    "/dev/shm": Folder(0o1777),
    "/tmp": Folder(0o1777),
    "/var/tmp": Folder(0o1777),
}


def archive(image: NodeImage) -> bytes:
    """`upper/…` overlays the base system, `proc/…` covers /proc, `table` lists the mounts."""
    proc: dict[str, Content] = {**dict.fromkeys(OF_DRIVERS, Folder()), **image.proc}
    if Path("/proc/modules").exists():  # otherwise this kernel has no modules, and no file to cover
        proc["modules"] = proc_modules(image)
    members = (
        _packed("upper", _rooted(beneath(image), _hidden(image) | DEVICES | image.files | _generated(image))),
        _packed("upper/sys", {"": Folder(), **image.sys}),
        _packed("proc", proc),
        _packed("", {"table": mount_table(image, list(proc))}),
    )
    whole = b"".join(members) + END_OF_ARCHIVE
    return whole + bytes(-len(whole) % tarfile.RECORDSIZE)


def mount_table(image: NodeImage, proc: list[str]) -> str:
    """The new root's mounts in order, as an fstab of paths relative to the build folder."""
    lines = ["testbed @/root overlay lowerdir=@/beneath,upperdir=@/upper,workdir=@/work"]
    lines += ["proc @/root/proc proc defaults", "devpts @/root/dev/pts devpts newinstance,ptmxmode=0666"]
    over = [path for path in proc if path in OF_DRIVERS or not path.startswith(OF_DRIVERS)]
    lines += [f"@/proc/{path} @/root/proc/{path} none bind" for path in over]
    lines += [f"{folder} @/root{path} none bind,ro" for path, folder in image.bound.items()]
    lines += [f"tmpfs @/root{path} tmpfs mode=1777,size={size}" for path, size in image.tmpfs.items()]
    lines += [f"@/frozen{n} @/root{path} ext4 loop,noatime" for n, path in enumerate(image.frozen)]
    return "".join(f"{line} 0 0\n" for line in lines)


def proc_modules(image: NodeImage) -> str:
    """The text of /proc/modules: modules with a state in /sys, as built-in ones have none."""
    names = [path.split("/")[1] for path in image.sys if path.startswith("module/") and path.endswith("/initstate")]
    return "".join(f"{name} 131072 0 - Live 0x0000000000000000\n" for name in names)


def units(services: Mapping[str, Service]) -> str:
    """The fake systemctl's table, with lines of `unit load active sub enabled restarts since`; `-` marks no value."""
    ids = {name: name if "." in name else f"{name}.service" for name in services}
    return "".join(
        f"{ids[name]} {unit.load} {unit.active} {unit.sub} {unit.enabled or '-'}"
        f" {unit.restarts} {unit.since_s * 1_000_000}\n"
        for name, unit in services.items()
    )


def beneath(image: NodeImage) -> Path:
    """The folder of this machine that the node's own files overlay."""
    return MACHINE if image.whole_machine else system()


def _hidden(image: NodeImage) -> dict[str, Content]:
    """What the node must not have of the base system, except where it has a file of its own."""
    paths = hidden() if image.whole_machine else []
    return {path: ABSENT for path in paths if not any(f"{own}/".startswith(f"{path}/") for own in image.files)}


def _generated(image: NodeImage) -> dict[str, Content]:
    """Files derived from other parts of the image."""
    files: dict[str, Content] = {
        name if name.startswith("/") else f"/usr/bin/{name}": File(script, 0o755)
        for name, script in image.tools.items()
    }
    files |= {path: Folder() for path in (*image.tmpfs, *image.hung, *image.frozen) if path not in DEVICES}
    for name, memlock in image.daemons.items():
        if f"/usr/sbin/{name}" in image.files:
            continue  # the image has its own
        files[f"{LIBRARIES}/{name}"] = File(Path("/bin/sh").read_bytes(), 0o755)  # so that /proc/PID/exe has this name
        files[f"/usr/sbin/{name}"] = File(_daemon(name, {**image.limits, "memlock": memlock}), 0o755)
    files |= limits_files({**image.limits, "memlock": image.memlock})
    files |= mountinfo_files(image.mounted, image.files | files)
    files |= ioctl_files(image.files | files)
    files |= dcb_files(image.files | files)
    files[LIBRARY_PATH] = ABSENT if image.nvml is None else fake_nvml()
    if image.nvml is not None:
        files[VALUES_PATH] = image.nvml
    if image.services is None:
        files["/usr/bin/systemctl"] = ABSENT
    else:
        files["/usr/bin/systemctl"] = File(Path(__file__).with_name("tools").joinpath("systemctl").read_text(), 0o755)
        files[UNITS_PATH] = units(image.services)
    if not Path("/usr/bin/python3").exists():
        files["/usr/bin/python3"] = Link(str(python()))
    return files


def _daemon(name: str, limits: Mapping[str, str]) -> str:
    """A daemon that only sleeps, with the process number and limits of a real one."""
    return f"""#!{LIBRARIES}/{name}
{with_limits(name, limits)}
[ ! -e {cgroup_file(name)} ] || mount --bind {cgroup_file(name)} /proc/$$/cgroup
echo $$ >/run/{name}.pid
sleep infinity &
wait
"""


def cgroup_file(name: str) -> str:
    """What /proc shows of the daemon's control groups, if the image has this file."""
    return f"/etc/testbed/{name}.cgroup"


def with_limits(name: str, limits: Mapping[str, str]) -> str:
    """Shell script lines that set these limits, as /proc then shows them."""
    edits = "".join(
        f"s|^{ROWS[limit_name][1]}.*|{limits_row(limit_name, limit)}|;" for limit_name, limit in limits.items()
    )
    return f"sed '{edits}' /proc/$$/limits >/run/{name}.limits\nmount --bind /run/{name}.limits /proc/$$/limits"


def _rooted(root: Path, files: Mapping[str, Content]) -> dict[str, Content]:
    """Resolve links in paths, so that a file in /lib does not become a folder over the link /lib.

    An absent path with nothing beneath is left out, because a whiteout over nothing would be listed.
    """
    rooted: dict[str, Content] = {}
    for path, content in files.items():
        real = _real_folder(root, str(Path(path).parent)) / Path(path).name
        if content is not ABSENT or (not path.startswith("/dev/") and os.path.lexists(root / real)):
            rooted[str(real)] = content
    return rooted


@functools.cache
def _real_folder(root: Path, folder: str) -> Path:
    inside = root / folder.lstrip("/")
    return (inside if folder.startswith("/dev") else inside.resolve()).relative_to(root)


def _packed(folder: str, files: Mapping[str, Content]) -> bytes:
    raw = {path: content() if callable(content) else content for path, content in files.items()}
    return _members(folder, tuple(raw.items()))


@functools.lru_cache(maxsize=64)
def _members(folder: str, files: tuple[tuple[str, str | bytes | Entry], ...]) -> bytes:
    """The archive's members, without its end."""
    out = io.BytesIO()
    for path, content in files:
        name = f"{folder}/{path}".strip("/")
        member, packed = _member(name, content if isinstance(content, Entry) else File(content))
        out.write(member.tobuf(tarfile.GNU_FORMAT))
        out.write(packed + bytes(-len(packed) % tarfile.BLOCKSIZE))
    return out.getvalue()


def _member(name: str, entry: Entry) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    content = b""
    if isinstance(entry, Link):
        member.type, member.linkname = tarfile.SYMTYPE, entry.target
    elif isinstance(entry, Device):
        member.type, member.devmajor, member.devminor, member.mode = (
            tarfile.CHRTYPE,
            entry.major,
            entry.minor,
            entry.mode,
        )
    elif isinstance(entry, Folder):
        member.type, member.mode = tarfile.DIRTYPE, entry.mode
    else:
        content = entry.content.encode() if isinstance(entry.content, str) else entry.content
        member.size, member.mode, member.mtime = len(content), entry.mode, entry.written
    return member, content
