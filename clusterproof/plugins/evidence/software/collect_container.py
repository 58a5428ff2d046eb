"""What a job's programs can use, usually in a container: device files that open, libraries that load.

`{"devices": [{"path": "/dev/nvidia0", "refused": "" | "EPERM", "driver": "nvidia" | ""}], "verbs": ["uverbs0"],
"gpus_asked": {"SLURM_GPUS_ON_NODE": 8}, "cuda_begins_with": 0, "libraries": {"libcuda.so.1": {"path":
"/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.09", "mount": "/", "text": "" | "what the loader says", "unread":
"", "is_there": true}}}`. `driver` is the one that registered the file's number in /proc/devices, `no device` for a
file without a number. It and `verbs` come from the kernel, which a container shares with its node; `mount` is the mount
point of the file system with the library, or with the library that needs something others lack; `unread` says why
`text` is no evidence against the library. `cuda_begins_with` is the first number in CUDA_VISIBLE_DEVICES, -1 if it
hides all GPUs, null if it has no number.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import stat
import time

from clusterproof.plugins.agent.reading import Broke, Denied, Node, error

FILES = re.compile(r"nvidia\d{1,3}|nvidiactl|nvidia-uvm|gdrdrv|neuron\d{1,3}")
FOLDERS = {
    "/dev/infiniband": re.compile(r"uverbs\d{1,3}"),
    "/dev/nvidia-caps-imex-channels": re.compile(r"channel\d{1,4}"),
}
MAX_DEVICES = 4096  # a node has up to 2,048 IMEX channels
ASKED, BINDS = ("SLURM_GPUS_ON_NODE",), ("SLURM_GPU_BIND", "SLURM_GPUS_PER_TASK")  # of a node, if not bound to tasks
LISTS, GPU = "NVIDIA_VISIBLE_DEVICES", re.compile(r"GPU-[\w-]{4,64}|\d{1,3}")
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libnccl.so.2", "libibverbs.so.1", "libfabric.so.1", "libgdrapi.so.2")
PLUGIN, NAMES_PLUGIN = "libnccl-net.so", "NCCL_NET_PLUGIN"  # NCCL's network plug-in, and what renames it
PLUGIN_NAME = re.compile(r"[\w.+-]{1,80}")
NOT_THERE = re.compile(
    r"(?:^|: )(\S+): (?:cannot open shared object file: )?No such file|shared library (\S+): No such"
)
# Which file the loader's message is about: the one that others do not fit to, else the one that is faulty.
OF_FILE = (re.compile(r"\((?:required|needed) by (/[^)]{1,1000})\)"), re.compile(r"(/[^:]{1,1000}): "))
RTLD_DI_LINKMAP, NAME_IN_LINKMAP = 2, ctypes.sizeof(ctypes.c_void_p)  # dlfcn.h, link.h
LOADING_S = 8  # for all libraries: a hanging one must hide neither devices nor other libraries
CLOSED, UNTRIED = "nobody, as whom root loads it, may not read it", "a process for it could not be made ready"
LATE = f"its loading did not end within {LOADING_S} s, or those before it took as long"
NO_DEVICE = "no device"
NOBODY, MAX_BYTES, MAX_FILES = 65534, 65536, 4096
PR_SET_PDEATHSIG = 1  # sys/prctl.h
LOOK_S = 0.05  # between checks whether a process has ended: what it has started may hold its output open


def read(node: Node) -> object:
    """See the module. Raises Denied if another root than the job's is read, Broke if there are too many files."""
    if node.root:
        raise Denied("only what runs where the job runs gets what the job gets; expected no --host-root")
    files = _device_files(node)
    if len(files) > MAX_DEVICES:
        raise Broke(f"{len(files)} device files; expected {MAX_DEVICES} at most")
    mounts, drivers, until = _mount_points(node), _drivers(node), time.monotonic() + LOADING_S
    return {
        "devices": [_opened(node, path, drivers) for path in files],
        "verbs": [name for name in node.names("/sys/class/infiniband_verbs") if name.startswith("uverbs")],
        "gpus_asked": _gpus_requested(),
        "cuda_begins_with": _cuda_begins_with(),
        "libraries": {name: _loaded(node, name, mounts, until) for name in (*LIBRARIES, *_plugin())},
    }


def _device_files(node: Node) -> list[str]:
    paths = [f"/dev/{name}" for name in node.names("/dev") if FILES.fullmatch(name)]
    for folder, pattern in FOLDERS.items():
        paths += [f"{folder}/{name}" for name in node.names(folder) if pattern.fullmatch(name)]
    return paths


def _gpus_requested() -> dict[str, int]:
    """How many GPUs the variables with a number ask for; all may be the image's own, and MIG shares GPUs."""
    texts = {name: os.environ.get(name, "") for name in ASKED if not any(map(os.environ.get, BINDS))}
    requested = {name: int(text) for name, text in texts.items() if re.fullmatch(r"[1-9][0-9]{0,2}", text)}
    listed = {*os.environ.get(LISTS, "").split(",")}
    return requested if not all(map(GPU.fullmatch, listed)) else {**requested, LISTS: len(listed)}


def _cuda_begins_with() -> int | None:
    """`cuda_begins_with`, see the module. Slurm's NoDevFiles belongs to a step that asked for no GPU."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "NoDevFiles").partition(",")[0].strip()
    if first.startswith(("GPU-", "MIG-", "NoDevFiles")):
        return None
    return int(first) if re.fullmatch(r"[0-9]{1,3}", first) else -1


def _drivers(node: Node) -> dict[int, str]:
    """The driver that registered each number of character devices."""
    text = str(node.text("/proc/devices", absent="")).partition("Block devices:")[0]
    return {int(number): name for number, name in re.findall(r"(?m)^ *(\d+) (\S+)$", text)}


def _opened(node: Node, path: str, drivers: dict[int, str]) -> dict[str, object]:
    node.at(path)
    driver, refused = "", ""
    try:
        status = os.stat(path)
        driver = drivers.get(os.major(status.st_rdev), "") if stat.S_ISCHR(status.st_mode) else NO_DEVICE
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as problem:
        refused = str(error(problem)["error"])
    return {"path": path, "refused": refused, "driver": driver}


def _plugin() -> tuple[str, ...]:
    """The file name of NCCL's network plug-in: from its own variable, or the usual one.

    None if the variable's value is not looked up: `none`, a path, a list.
    """
    name = os.environ.get(NAMES_PLUGIN, "")
    if name and (not PLUGIN_NAME.fullmatch(name) or name == "none"):
        return ()
    return (PLUGIN if not name else name if ".so" in name else f"libnccl-net-{name}.so",)


def _mount_points(node: Node) -> list[str]:
    """Every mount point, the deepest first."""
    text = str(node.text("/proc/self/mountinfo", absent=""))
    return sorted({cells[4] for line in text.splitlines() if len(cells := line.split()) > 4}, key=len, reverse=True)


def _loaded(node: Node, name: str, mounts: list[str], until: float) -> dict[str, object]:
    """Load a library in a process of its own, which it may kill: its path, or the loader's message."""
    node.at(name)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setpgid(0, 0)
            for printed in (1, 2):
                os.dup2(os.open("/dev/null", os.O_WRONLY), printed)
            os.closerange(3, writing)  # the library must not write to these
            os.closerange(writing + 1, MAX_FILES)
            _become_nobody()
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # root of a container may kill nobody's
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(max(1, int(until - time.monotonic())))
            os.write(writing, json.dumps(_load(name)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    output, status = _ended(child, reading, max(until, time.monotonic() + 1) + LOOK_S)
    path, text = _answered(output) or ("", f"{name} ends its process ({status})")
    missing = NOT_THERE.search(text)
    is_there = not (missing and name in (missing[1], missing[2]))
    is_closed = not os.geteuid() and ("Permission denied" in text or (not is_there and bool(_where_told(name))))
    is_untried, is_late = not output and not status, status & 0x7F == signal.SIGALRM
    spoken_of = OF_FILE[0].search(text) or OF_FILE[1].match(text)
    at = os.path.realpath(spoken_of[1]) if spoken_of else path or _where_told(name)
    return {
        "path": path,
        "mount": next((mount for mount in mounts if f"{at}/".startswith(f"{mount.rstrip('/')}/")), "") if at else "",
        "text": text,
        "unread": CLOSED if is_closed else UNTRIED if is_untried else LATE if is_late else "",
        "is_there": is_there or is_closed,
    }


def _ended(child: int, reading: int, until: float) -> tuple[bytes, int]:
    """What a process writes until its end, and its status; that of a timer or a full pipe if it goes on.

    Kills what it has started, which may hold the pipe open.
    """
    output, status, is_open = b"", -1, True
    while status < 0 and len(output) < MAX_BYTES and time.monotonic() < until:
        pid, ended = os.waitpid(child, os.WNOHANG)
        status = ended if pid else -1
        while is_open and select.select([reading], [], [], 0 if pid else LOOK_S)[0]:
            more = os.read(reading, MAX_BYTES)
            output += more
            is_open = bool(more) and len(output) < MAX_BYTES
            if not pid:
                break
        if not (pid or is_open):
            time.sleep(LOOK_S)
    os.close(reading)
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)
    if status < 0:
        os.waitpid(child, os.WNOHANG)
        status = signal.SIGALRM if len(output) < MAX_BYTES else signal.SIGPIPE
    return output, status


def _answered(output: bytes) -> tuple[str, str] | None:
    """What the process found; None where it ended before, or the library wrote in its place."""
    try:
        path, text = json.loads(output)
    except (TypeError, ValueError):
        return None
    return (path, text) if isinstance(path, str) and isinstance(text, str) else None


def _where_told(name: str) -> str:
    """The path of a library in the folders of LD_LIBRARY_PATH that can be read; empty if it is in none."""
    paths = (f"{folder}/{name}" for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    return next((os.path.realpath(path) for path in paths if os.path.exists(path)), "")


def _become_nobody() -> None:
    """Drop root: a library's own code runs when it is loaded."""
    if os.geteuid():
        return
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError:
        pass  # only root of a user namespace, which is an ordinary user of the node


def _load(name: str) -> tuple[str, str]:
    """The path of a library that loads, or the loader's message."""
    try:
        loaded = ctypes.CDLL(name)
        linked = ctypes.c_void_p()
        ctypes.CDLL(None).dlinfo(ctypes.c_void_p(loaded._handle), RTLD_DI_LINKMAP, ctypes.byref(linked))  # noqa: SLF001
        where = ctypes.cast((linked.value or 0) + NAME_IN_LINKMAP, ctypes.POINTER(ctypes.c_char_p))[0]
        return os.path.realpath((where or b"").decode("utf-8", "replace")), ""
    except OSError as problem:
        return "", str(problem)[:2000]
