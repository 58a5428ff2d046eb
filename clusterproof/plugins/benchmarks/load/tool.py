"""Runs a measuring program to its end or deadline, with its raw output, bounded; and counts the GPUs."""

from __future__ import annotations

import glob
import json
import os
import re
import time

from clusterproof.plugins.agent.reading import Broke, Node, TimedOut
from clusterproof.plugins.agent.tools import Tool, find
from clusterproof.plugins.agent.trust import distrust
from clusterproof.plugins.benchmarks.launchers.pipes import BoundedOutput

MAX_OUTPUT_BYTES = 256 * 1024
ASK_S = 5.0  # from SIGINT to SIGKILL: dcgmi stops what it has started elsewhere
END_S = 10.0  # of a collector's time, to end what runs too long and report it
FOLDERS = (  # where training images put what PATH lacks, newest version first
    "/opt/nccl-tests/build",
    "/usr/local/cuda*/efa/test-cuda-*",
    "/usr/local/cuda/bin",
    "/usr/local/bin",
    "/opt/nvbandwidth",
)
LIBRARIES = (
    "/opt/amazon/openmpi*/lib*",
    "/opt/amazon/efa/lib*",
    "/opt/amazon/ofi-nccl/lib*",
    "/opt/amazon/ofi-nccl/lib/*-linux-gnu",
    "/opt/nccl/build/lib",
    "/usr/local/cuda/lib64",
)
BUS = "/sys/bus/pci/devices"
DEVICE = re.compile(r"nvidia\d{1,3}")
NVIDIA, CLASSES = "0x10de", ("0x0302", "0x0300")
NONE = {"none": "no NVIDIA GPU"}


def measured(node: Node, name: str, *arguments: str, timeout_s: float = 0.0, ask_s: float = 0.0) -> dict[str, object]:
    """Run a program of the node: its command line, exit status and output. Raises Absent, Denied, TimedOut.

    It has `timeout_s`, or what is left of the collector's time.
    """
    program = find(node, name, folders(node), named(node))
    return output_of(node, (name, *arguments), program, timeout_s or node.collector_s - END_S - ask_s, ask_s)


def output_of(
    node: Node,
    argv: tuple[str, ...],
    program: str,
    timeout_s: float,
    ask_s: float = 0.0,
    variables: dict[str, str] = {},  # noqa: B006 - only read
) -> dict[str, object]:
    """Run this program with these arguments. Raises Denied, TimedOut."""
    tool = Tool(node, *argv, program=program, environment={**environment(node), **variables})
    began = time.monotonic()
    output, late = communicate(tool, timeout_s, ask_s)
    if late:
        last = " ".join(output[-400:].split())
        raise TimedOut(f"{late}; its last words: {last}" if last else late)
    return {
        "command": tool.line,
        "exit": tool.exit,
        "seconds": round(time.monotonic() - began, 3),
        "output": output,
    }


def communicate(
    tool: Tool, timeout_s: float, ask_s: float = 0.0, most_bytes: int = MAX_OUTPUT_BYTES
) -> tuple[str, str]:
    """Its output, bounded, until it exits or is killed; and why it was killed, empty if it was not."""
    output = BoundedOutput(most_bytes)  # results are at the end, behind what a library logs
    why = ""
    try:
        for chunk in tool.chunks(max(timeout_s, 0.1), ask_s):
            output.add(chunk)
    except Broke as late:
        why = str(late)
    return output.kept().decode("utf-8", "replace"), why


def named(node: Node) -> tuple[str, ...]:
    """The program folders that the user names."""
    return tuple(folder for folder in node.settings.get("folders", "").split(":") if folder)


def folders(node: Node) -> tuple[str, ...]:
    """Further folders of programs: those of images."""
    return tuple(folder for pattern in FOLDERS for folder in matching(node, pattern))


def environment(node: Node) -> dict[str, str]:
    """Numbers GPUs as nvidia-smi does; adds images' library folders unless other users could have written to them."""
    there = [folder for pattern in LIBRARIES for folder in matching(node, pattern)]
    libraries = [folder for folder in there if ":" not in folder and not is_doubtful(node, folder)]
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LD_LIBRARY_PATH": ":".join(libraries)}


def matching(node: Node, pattern: str) -> list[str]:
    """The node's paths matching that pattern, the newest version first."""
    return sorted((path[len(node.root) :] for path in glob.glob(node.root + pattern)), reverse=True)


def is_doubtful(node: Node, path: str) -> bool:
    """Whether another user could have put a file there, or none exists."""
    try:
        return bool(distrust(path, node.root))
    except OSError:
        return True


def document_in(ran: dict[str, object], opening: str = "{") -> object:
    """The JSON object (or list: `[`) in a program's output, despite warnings around it. Raises Broke."""
    text = str(ran["output"])
    try:
        return json.JSONDecoder().raw_decode(text, max(text.find(opening), 0))[0]
    except (ValueError, RecursionError):
        excerpt = " ".join(text.split())[-300:]
        raise Broke(f"{ran['command']} ended with {ran['exit']} and printed no JSON: {excerpt}") from None


def gpu_count(node: Node) -> int:
    """The number of GPUs available to this process, by device files; without those, all on the bus."""
    files = [node.path(f"/dev/{name}") for name in node.names("/dev") if DEVICE.fullmatch(name)]
    given = sum(not _is_denied(file) for file in files)
    return given or sum(1 for address in node.names(BUS) if _is_gpu(node, f"{BUS}/{address}"))


def _is_denied(path: str) -> bool:
    """Whether a device cgroup, or its mode, denies this process a device; a broken one still counts as available."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except PermissionError:
        return True
    except OSError:
        pass
    return False


def _is_gpu(node: Node, path: str) -> bool:
    if node.text(f"{path}/vendor", absent="") != NVIDIA:
        return False
    return str(node.text(f"{path}/class", absent="")).startswith(CLASSES)
