"""Where the pods of a job ran, as JSON lines: `{"pod": "train-worker-0", "node": "gpu001"}`.

`clusterproof watch --job NAMESPACE/NAME` leaves it: in a pod a rank knows its pod's name alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.lines import Lines, json_lines
from clusterproof.plugins.training_run.records import Cut, RunError
from clusterproof.plugins.training_run.unpacked import RunFile
from clusterproof.plugins.training_run.values import name

PODS_FILE = "pods.jsonl"
EXPECTED = 'expected {"pod": "train-worker-0", "node": "gpu001"}'


@record
class OnNode:
    """A host of a run's that is a pod, and its node."""

    host: str
    node: str


def are_pods(head: bytes) -> bool:
    """Whether a file that begins so has such lines."""
    try:
        data = json.loads(head.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.keys() >= {"pod", "node"}


def read_pods(path: RunFile) -> Iterator[OnNode | Cut]:
    """The pods, a line each. Raises RunError."""
    lines = Lines(path)
    for data in json_lines(lines, EXPECTED):
        if not isinstance(data, Mapping):
            raise RunError(f"{lines.where}: {str(data)!r:.60} is no pod; {EXPECTED}")
        yield OnNode(name(data.get("pod"), "pod", lines.where), name(data.get("node"), "node", lines.where))
    if lines.is_cut:
        yield Cut()


def write_pods(folder: Path, places: Mapping[str, str]) -> None:
    """Leave it in the folder of a recording, where there are any: nodes by hosts. Raises OSError."""
    lines = [json.dumps({"pod": host, "node": node}) for host, node in sorted(places.items()) if node]
    if lines:
        (folder / PODS_FILE).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
