"""Standard programs that measure a node: a function for each collector, with its name.

`fi_pingpong` sends a message through each EFA device back to the same node, with shared memory switched off. `fio`
writes to and reads from a folder that the user names, bypassing the node's own cache.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Iterator

from clusterproof.plugins.agent.reading import Absent, Broke, Node
from clusterproof.plugins.agent.tools import Tool, find, user_of
from clusterproof.plugins.benchmarks.load.tool import (
    ASK_S,
    END_S,
    NONE,
    document_in,
    environment,
    folders,
    gpu_count,
    measured,
    named,
    output_of,
)

NCCL_SIZES = ("-b", "1G", "-e", "8G", "-f", "2")  # nccl-tests lowers the maximum itself if memory is short
NEURON_DEVICES = "/sys/devices/virtual/neuron_device"
NEURON_LS_S = 30.0
NEURON_SIZES = ("--minbytes", "1kb", "--maxbytes", "1gb", "--stepfactor", "4", "--datatype", "fp32", "--check")


def dcgm_diag(node: Node) -> object:
    """The output of `dcgmi diag -j`, at the level and with the parameters that the user chooses.

    At its deadline it gets SIGINT first: the work is done by DCGM's host engine.
    """
    if not gpu_count(node):
        return NONE
    level, parameters = node.settings.get("dcgm_level", "2"), node.settings.get("dcgm_parameters", "")
    chosen = ("-p", parameters) if parameters else ()
    return measured(node, "dcgmi", "diag", "-r", level, *chosen, "-j", ask_s=ASK_S)


def node_busbw(node: Node) -> object:
    """The output of `all_reduce_perf` on this node's GPUs: one process, every GPU, results compared."""
    gpus = gpu_count(node)
    if not gpus:
        return NONE
    if gpus == 1:
        return {"none": "one GPU: there is no link to reduce over"}
    ran = measured(node, "all_reduce_perf", *NCCL_SIZES, "-g", str(gpus), "-c", "1", "-w", "5", "-n", "20")
    return {"gpus": gpus, **ran}


def nccom(node: Node) -> object:
    """The output of `nccom-test` for an all-reduce over all NeuronCores of this node."""
    if not node.names(NEURON_DEVICES):
        return {"none": "no Neuron device"}
    return measured(node, "nccom-test", "-r", str(cores(node)), *NEURON_SIZES, "allr")


def cores(node: Node) -> int:
    """The number of cores in neuron-ls: logical ones if the runtime combines physical ones. Raises Broke."""
    data = document_in(measured(node, "neuron-ls", "-j", timeout_s=NEURON_LS_S), "[")
    devices = [device for device in data if isinstance(device, dict)] if isinstance(data, list) else []
    count = sum(int(device["nc_count"]) for device in devices if isinstance(device.get("nc_count"), int))
    if not count:
        raise Broke("neuron-ls -j reports no NeuronCore; expected nc_count of every device")
    return count


INFO = ("fi_info", "-p", "efa", "-t", "FI_EP_RDM")
EXCHANGE = ("fi_pingpong", "-e", "rdm", "-p", "efa", "-I", "200", "-S", "1048576")
ON_THE_DEVICE = {"FI_EFA_ENABLE_SHM_TRANSFER": "0"}  # otherwise a message to the same host never reaches the device
OWN = ("/opt/amazon/efa/bin",)  # before the distribution's libfabric, which may not support EFA
HERE = "127.0.0.1"
DOMAIN = re.compile(r"^ *domain: (\S{1,100}) *$", re.MULTILINE)
INFO_S, LISTEN_S, EXCHANGE_S, LINGER_S = 20.0, 10.0, 8.0, 1.0
LOOK_S = 0.02
MAX_WORDS = 2000  # of the output of either end, half of them the last: the result is behind a library's warnings
MAX_DOMAINS = 64
LISTENING = "0A"  # in /proc/net/tcp


def efa_loopback(node: Node) -> object:
    """The output of both ends, by domain."""
    own = (*folders(node), *OWN)
    program = find(node, "fi_pingpong", own, named(node))
    data = output_of(node, INFO, find(node, "fi_info", own, named(node)), INFO_S)
    names = [name for name in dict.fromkeys(DOMAIN.findall(str(data["output"]))) if not name.endswith("-dgrm")]
    if not names and data["exit"]:
        return {"none": " ".join(str(data["output"]).split())[:200]}
    rows: dict[str, dict[str, object]] = {name: {"domain": name} for name in names[:MAX_DOMAINS]}
    others = {"command": " ".join(EXCHANGE)}
    return node.each("domains", rows, lambda name: {**rows[name], **exchanged(node, program, name)}, others)


def exchanged(node: Node, program: str, domain: str) -> dict[str, object]:
    """One exchange: how the client ended (null: it did not, or there was no server), and what both ends printed.

    Raises Broke if a server has no error and does not listen yet: that is before it opens the device.
    """
    command, port = (*EXCHANGE, "-d", domain), free_port()
    variables = {**environment(node), **ON_THE_DEVICE}
    server = Tool(node, *command, "-B", port, program=program, environment=variables)
    if not await_listener(server, port):
        printed, has_ended = communicate(server, LOOK_S)
        if not (printed or has_ended):
            raise Broke(f"fi_pingpong did not listen within {LISTEN_S:g} s, as on a busy node")
        return {"exit": None, "output": "", "server": printed}
    client = Tool(node, *command, "-P", port, HERE, program=program, environment=variables)
    output, has_ended = communicate(client, EXCHANGE_S)
    return {"exit": client.exit if has_ended else None, "output": output, "server": communicate(server, LINGER_S)[0]}


def communicate(tool: Tool, timeout_s: float) -> tuple[str, bool]:
    """Its output until it exits or is killed, and whether it exited by itself."""
    output = bytearray()
    has_ended = True
    try:
        for chunk in tool.chunks(timeout_s):
            output += chunk
            del output[MAX_WORDS // 2 : -MAX_WORDS // 2]
    except Broke:
        has_ended = False
    return output.decode("utf-8", "replace"), has_ended


def free_port() -> str:
    """An unused TCP port of this node."""
    with socket.socket() as trial:
        trial.bind((HERE, 0))
        return str(trial.getsockname()[1])


def await_listener(server: Tool, port: str) -> bool:
    """Whether the server listens before it prints an error; connecting to find out would use its only turn."""
    until = time.monotonic() + LISTEN_S
    while time.monotonic() < until and not server.speaks():
        if any(listens(table, f":{int(port):04X}") for table in ("/proc/net/tcp", "/proc/net/tcp6")):
            return True
        time.sleep(LOOK_S)
    return False


def listens(table: str, port: str) -> bool:
    """Whether that table of sockets has a listener on the port."""
    try:
        with open(table) as rows:
            fields = [row.split() for row in rows]
    except OSError:
        return False
    return any(row[1].endswith(port) and row[3] == LISTENING for row in fields[1:])


KIB, MIB = 1024, 1024 * 1024  # the former in fio's `io_bytes` before version 3, which added `io_kbytes`
JOBS = 8  # threads of one process: fio's worker processes leave its group, and would outlive the collector
FILE_MIB = 4096  # maximum that they write together, and then read
RUN_S = 20  # maximum for writing, and for reading
FREE = 4  # the file must fit into the free space so many times: this test must not fill a file system
PLAIN = ("--direct=1", "--ioengine=psync", "--bs=1M", "--thread", "--fallocate=none", "--output-format=json")
PREFIX = ".clusterproof-"


def fs_bandwidth(node: Node) -> object:
    """Bytes and seconds of a sequential write and of reading it back. Raises Absent, Broke."""
    folder = node.settings["fs_folder"]
    if not os.path.isdir(node.path(folder)):
        raise Absent(f"no folder {folder}")
    size_mib = int(node.settings.get("fs_mib", FILE_MIB)) // JOBS
    require_space(node, folder, size_mib)
    node.at(folder)
    runs_as = user_of(node, find(node, "fio", folders(node), named(node))) if named(node) else os.geteuid()
    with scratch_file(node.path(folder), runs_as) as (path, name):
        written = phase(node, path, name, "write", size_mib)
        least_mib = min(job["bytes"] for job in written) // MIB
        if not least_mib:
            raise Broke(f"{folder}: a job wrote less than 1 MiB in {RUN_S} s")
        read_back = phase(node, path, name, "read", least_mib, size_mib)
    return {"folder": folder, "write": total(written), "read": total(read_back)}


def require_space(node: Node, folder: str, size_mib: int) -> None:
    """Write nothing if little space is free. Raises Broke."""
    space = os.statvfs(node.path(folder))
    free_mib = space.f_bavail * space.f_frsize // MIB
    needed_mib = FREE * JOBS * size_mib
    if free_mib < needed_mib:
        raise Broke(f"{folder} has {free_mib} MiB free; expected {needed_mib} before {JOBS * size_mib} are written")


def phase(node: Node, path: str, name: str, direction: str, size_mib: int, apart_mib: int = 0) -> list[dict[str, int]]:
    """The results of each job of a fio run. Raises Absent, Broke, TimedOut."""
    arguments: tuple[str, ...] = (
        f"--name={direction}",
        f"--filename={path}",
        f"--description={name}",
        f"--rw={direction}",
        f"--size={size_mib}M",
    )
    apart = f"--offset_increment={apart_mib or size_mib}M"
    own = ("--end_fsync=1", "--create_on_open=1") if direction == "write" else ()  # else it makes the file anew
    arguments += (apart, f"--numjobs={JOBS}", f"--runtime={RUN_S}", *PLAIN, *own)
    ran = measured(node, "fio", *arguments, timeout_s=(node.collector_s - END_S) / 2)
    if ran["exit"]:
        raise Broke(f"fio ended its {direction} with {ran['exit']}: {' '.join(str(ran['output']).split())[:200]}")
    data = document_in(ran)
    jobs = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(jobs, list) or len(jobs) != JOBS:
        raise Broke(f"fio reported nothing about its {JOBS} jobs")
    done = [job[direction] for job in jobs]
    return [{"bytes": of["io_bytes"] * (1 if "io_kbytes" in of else KIB), "ms": of["runtime"]} for of in done]


def total(jobs: list[dict[str, int]]) -> dict[str, object]:
    """The total bytes, and the seconds of the slowest job."""
    return {"bytes": sum(job["bytes"] for job in jobs), "seconds": max(job["ms"] for job in jobs) / 1000}


@contextlib.contextmanager
def scratch_file(folder: str, user: int) -> Iterator[tuple[str, str]]:
    """Create a file in a folder, readable only by that user, and yield a path to it, and its name. Raises OSError.

    The path leads a child to this file, and to no other that a user of the folder gives its name. It is removed at the
    end by this process, or if that is killed, by another that waits for this.
    """
    name = os.path.join(folder, PREFIX + secrets.token_hex(6))
    lifeline = watched(name)
    try:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            os.set_inheritable(file, True)
            if user != os.geteuid():  # not of a file that the server gave to nobody, as with root_squash
                os.fchown(file, user, -1)
            yield f"/proc/self/fd/{file}", name
        finally:
            os.close(file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        os.close(lifeline)


def watched(path: str) -> int:
    """Have a path removed as soon as the returned descriptor is closed, however its holders end."""
    waiting, lifeline = os.pipe()
    is_watched, watches = os.pipe()
    os.set_inheritable(lifeline, True)  # the writing program holds it open too
    if not os.fork():
        try:
            watch(path, waiting, watches)
        finally:
            os._exit(0)
    os.close(waiting)
    os.close(watches)
    os.read(is_watched, 1)
    os.close(is_watched)
    return lifeline


def watch(path: str, waiting: int, watches: int) -> None:
    """Leave the collector's group, which is killed as a whole; wait; remove the file."""
    os.setsid()
    signal.alarm(0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    os.write(watches, b".")
    os.closerange(3, waiting)
    os.closerange(waiting + 1, 1024)
    os.read(waiting, 1)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
