"""Where ranks ran: hostfiles of mpirun and DeepSpeed, and the nodes of a job's pods."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from clusterproof.plugins.training_run import CutFile, RunError
from clusterproof.plugins.training_run.files import Format, Lines, RunFile, json_lines, name
from clusterproof.plugins.training_run.placement import OnNode, Slots

MAX_SLOTS = 1_024
EXPECTED_LINE = "expected NODE slots=8"
_LINE = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]{0,199})\s+slots\s*=\s*([0-9]{1,4})(?:\s+[\w-]+=\S+)*\s*(?:#.*)?$")
_NOTHING = re.compile(r"\s*(?:#.*)?$")


def is_hostfile(head: bytes) -> bool:
    """Whether a file that begins so is one."""
    lines = head.decode("utf-8", "replace").splitlines()
    first = next((line for line in lines if not _NOTHING.match(line)), "")
    return bool(_LINE.match(first))


def read_hostfile(path: RunFile) -> Iterator[Slots]:
    """Its nodes. Raises RunError."""
    lines = Lines(path)
    for line in lines:
        match = _LINE.match(line)
        if match and 0 < int(match[2]) <= MAX_SLOTS:
            yield Slots(match[1], int(match[2]))
        elif not _NOTHING.match(line):
            raise RunError(f"{lines.where}: {line!r:.60} is no line of a hostfile; {EXPECTED_LINE}")


PODS_FILE = "pods.jsonl"
EXPECTED_POD = 'expected {"pod": "train-worker-0", "node": "gpu001"}'


def are_pods(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        first = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and first.keys() >= {"pod", "node"}


def read_pods(path: RunFile) -> Iterator[OnNode | CutFile]:
    """The pods, a line each. Raises RunError."""
    lines = Lines(path)
    for entry in json_lines(lines, EXPECTED_POD):
        if not isinstance(entry, Mapping):
            raise RunError(f"{lines.where}: {str(entry)!r:.60} is no pod; {EXPECTED_POD}")
        yield OnNode(name(entry.get("pod"), "pod", lines.where), name(entry.get("node"), "node", lines.where))
    if lines.is_cut:
        yield CutFile()


def write_pods(folder: Path, nodes: Mapping[str, str]) -> None:
    """Write it to the folder of a recording, if there are any: nodes by hosts. Raises OSError."""
    lines = [json.dumps({"pod": host, "node": node}) for host, node in sorted(nodes.items()) if node]
    if lines:
        (folder / PODS_FILE).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


FORMATS = (
    Format("a hostfile", is_hostfile, read_hostfile),
    Format("pods of a job (JSON lines)", are_pods, read_pods),
)
