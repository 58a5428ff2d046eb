"""Puts one fault, or one other difference, into a node image."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from tests.testbed import sysfs
from tests.testbed.compiled import program
from tests.testbed.image import ABSENT, Content, File, Link, NodeImage, Service

SLOW_MOUNT = "/usr/lib/testbed/slow_mount"
FI_INFO_HIDES = "/usr/lib/testbed/fi_info_hides"


def with_nvml(image: NodeImage, gpu: int | None = None, **values: object) -> NodeImage:
    """NVML gives these answers for one GPU or for the system. Keys with blanks: `**{"nvlink 5": "inactive"}`."""
    lines = [f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in values.items()]
    if gpu is None:  # the system's part comes before the first GPU's
        text = "\n".join([*_system_lines(image), *lines, *_gpu_lines(image)])
    else:
        text = "\n".join([(image.nvml or "").rstrip(), f"[gpu {gpu}]", *lines])
    return replace(image, nvml=text + "\n")


def with_stuck_nvml(image: NodeImage, gpu: int, call: str = "memory_info", path: str = "/stuck") -> NodeImage:
    """That NVML call on that GPU never returns, and its process cannot be killed until the node is powered off."""
    return with_nvml(with_frozen(image, path), gpu, hang=call, hang_on=f"{path}/nvml")


def with_pynvml(image: NodeImage) -> NodeImage:
    """Install this environment's nvidia-ml-py for the node's own python3."""
    spec = importlib.util.find_spec("pynvml")
    assert spec
    assert spec.origin
    return with_file(image, "/usr/lib/python3/dist-packages/pynvml.py", Path(spec.origin).read_bytes())


def with_whole_machine(image: NodeImage) -> NodeImage:
    """Put all that is installed on this machine beneath the node, for nodes that run some of it."""
    return replace(image, whole_machine=True)


def with_file(image: NodeImage, path: str, content: Content) -> NodeImage:
    """Set the content of a file, including in /sys and /proc (following links of the image's own /sys)."""
    if path.startswith("/sys/"):
        return replace(image, sys=image.sys | {sysfs.resolved(image.sys, path[5:]): content})
    if path.startswith("/proc/"):
        return replace(image, proc=image.proc | {path[6:]: content})
    return replace(image, files=image.files | {path: content})


def without_file(image: NodeImage, path: str) -> NodeImage:
    """Remove a file or folder. A file of /proc cannot be removed."""
    if path.startswith("/sys/"):
        gone = sysfs.resolved(image.sys, path[5:])
        return replace(image, sys={name: entry for name, entry in image.sys.items() if not _within(name, gone)})
    files = {name: entry for name, entry in image.files.items() if not _within(name, path)}
    tools = {name: text for name, text in image.tools.items() if path not in (name, f"/usr/bin/{name}")}
    return replace(image, files=files | {path: ABSENT}, tools=tools)


def with_line(image: NodeImage, path: str, line: str) -> NodeImage:
    """Append a line to a text file of the image."""
    entry = image.files.get(path, "")
    content = entry.content if isinstance(entry, File) else entry
    if not isinstance(content, str):
        raise TypeError(f"{path} is not a text of this image, a line cannot be added to it")
    text = f"{content}{line}\n"
    return with_file(image, path, File(text, entry.mode) if isinstance(entry, File) else text)


def with_kernel_line(image: NodeImage, text: str, *, at_s: float = 80_000.0, level: int = 3) -> NodeImage:
    """Add a line to the kernel log."""
    entry = image.files["/dev/kmsg"]
    assert isinstance(entry, File)
    number = str(entry.content).count(",-;")
    return with_line(image, "/dev/kmsg", f"{level},{number},{int(at_s * 1e6)},-;{text}")


def with_tool(image: NodeImage, name: str, script: str) -> NodeImage:
    """Replace a program with this script, by name (in /usr/bin) or absolute path."""
    return replace(image, tools=image.tools | {name: script})


def with_service(
    image: NodeImage,
    name: str,
    *,
    load: str = "loaded",
    active: str = "active",
    sub: str = "running",
    enabled: str = "enabled",
    restarts: int = 0,
    since_s: int = 60,
) -> NodeImage:
    """Set what systemctl reports of that unit."""
    unit = Service(load, active, sub, enabled, restarts, since_s)
    return replace(image, services=(image.services or {}) | {name: unit})


def with_tmpfs(image: NodeImage, path: str, size: str) -> NodeImage:
    """Mount a tmpfs of that size (1g, 64m, …) there."""
    return replace(image, tmpfs=image.tmpfs | {path: size})


def without_tmpfs(image: NodeImage, path: str) -> NodeImage:
    """Mount nothing there."""
    return replace(image, tmpfs={name: size for name, size in image.tmpfs.items() if name != path})


def with_frozen(image: NodeImage, path: str) -> NodeImage:
    """A file system on which writes hang and cannot be killed until the node is powered off."""
    return replace(image, frozen=(*image.frozen, path))


def with_full_root(image: NodeImage, percent: int) -> NodeImage:
    """The root volume is this full, to about one percent."""
    return replace(image, root_percent=percent)


def with_hung_mount(image: NodeImage, path: str, kind: str = "fuse.sshfs") -> NodeImage:
    """A mount that never answers: a process that touches it hangs, but can be killed."""
    return replace(image, hung=image.hung | {path: kind})


def with_slow_mount(image: NodeImage, path: str, kind: str = "fuse.sshfs") -> NodeImage:
    """A mount that takes a second to answer; it is the only FUSE mount."""
    answering = program(Path(__file__).with_name("tools") / "slow_mount.c")
    return with_file(replace(image, hung={path: kind}), SLOW_MOUNT, File(answering, 0o755))


def with_memlock(image: NodeImage, limit: str, daemon: str = "") -> NodeImage:
    """Limit the bytes of memory that this daemon or a login may lock ("unlimited": no limit)."""
    if daemon:
        return replace(image, daemons=image.daemons | {daemon: limit})
    return replace(image, memlock=limit)


def without_module(image: NodeImage, name: str) -> NodeImage:
    """The kernel module is not loaded."""
    return without_file(image, f"/sys/module/{name}")


def without_pci(image: NodeImage, address: str) -> NodeImage:
    """The PCI function is gone from the bus, with everything its driver created for it."""
    gone = f"devices/pci0000:00/{address}"
    tree = {
        path: entry
        for path, entry in image.sys.items()
        if not _within(path, gone) and not (isinstance(entry, Link) and f"{address}/" in f"{entry.target}/")
    }
    return replace(image, sys=tree)


def without_driver(image: NodeImage, address: str) -> NodeImage:
    """No driver is bound to the PCI function, though it is on the bus."""
    return without_file(image, f"/sys/devices/pci0000:00/{address}/driver")


def with_spare_port(image: NodeImage) -> NodeImage:
    """An unused Intel port on the board, without a driver."""
    return replace(image, sys=image.sys | sysfs.pci_function("0000:00:1f.6", "8086", "15bc", "020000"))


def without_efa(image: NodeImage, name: str) -> NodeImage:
    """The EFA device (rdmap79s0, …) is gone from the bus."""
    bus = int(name.removeprefix("rdmap").removesuffix("s0"))
    return without_pci(image, f"0000:{bus:02x}:00.0")


def without_libfabric_domain(image: NodeImage, *names: str) -> NodeImage:
    """libfabric does not see these EFA devices, though the kernel does."""
    return with_file(image, FI_INFO_HIDES, "".join(f"{name}\n" for name in names))


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _system_lines(image: NodeImage) -> list[str]:
    return (image.nvml or "").partition("[gpu")[0].rstrip().splitlines()


def _gpu_lines(image: NodeImage) -> list[str]:
    _, start, rest = (image.nvml or "").partition("[gpu")
    return (start + rest).rstrip().splitlines()
