"""Makes an answer fit into what its connection carries: old lines of the kernel log go first, then whole collectors."""

from __future__ import annotations

import json
import re
import zlib

TYPE_CHECKING = False  # typing's own costs an import on every node
if TYPE_CHECKING:
    from typing import Any

LEAST_LINES = 16  # of a class that stay
PROCESSES, WORST = "processes", "worst"
CLASSES = (  # of lines, by how they begin; all others are in one more
    (  # what processes can have written as often as they like: it goes first, and fails no node
        PROCESSES,
        re.compile(
            r"(?s)(?:traps: )?.{0,15}?\[\d+\]:? (?:segf|general|trap|bad fr|unhandled|vsys)|INFO: task |cgroup: fork"
            r"|Memory cgroup out of memory|oom_reaper: |oom-kill:constraint=CONSTRAINT_MEMCG"
            r"|.{0,15} invoked oom-killer: |.{0,15}: page allocation failure[.:,] {0,2}order:(?:[4-9]|\d\d)"
        ),
    ),
    (WORST, re.compile(r"NVRM: Xid|nvidia-nvswitch\d+: SXid|mce: |\{\d+\}\[Hardware Error")),
    ("file_servers", re.compile(r"Lustre|LNet|nfs: ")),
)
TOO_LONG = "the answer is longer than its connection carries"


def fitted(answer: dict[str, Any], room_bytes: int) -> bytes:
    """The answer as text that is no longer than that when it is compressed; what had to go is said in its place."""
    collectors = answer["collectors"]
    log = collectors.get("kernel_log", {}).get("value")
    while _size(answer) > room_bytes:
        if log and _shorten(log):
            continue
        sizes = {name: _size(collector) for name, collector in collectors.items() if "value" in collector}
        if not sizes:
            break
        longest = max(sizes, key=lambda name: sizes[name])
        collectors[longest] = {"status": "cut", "detail": TOO_LONG, "seconds": collectors[longest]["seconds"]}
    return json.dumps(answer).encode()


def _shorten(log: dict[str, Any]) -> bool:
    """Leave out the older half of the largest class of lines and say how many. False: all are short.

    Those of processes are the first to go, and the worst the last.
    """
    classes: dict[str, list[Any]] = {}
    for line in log["lines"]:
        classes.setdefault(class_of(line[1]), []).append(line)
    long = [name for name, lines in classes.items() if len(lines) > LEAST_LINES]
    if not long:
        return False
    name = max(long, key=lambda name: (name == PROCESSES, name != WORST, len(classes[name])))
    gone = classes[name][: len(classes[name]) // 2]
    cut = log.setdefault("cut", {})
    before = cut.get(name, [0])[0]
    cut[name] = [before + sum(1 + sum(line[2:3]) for line in gone), gone[-1][0]]  # how many; when the last of them was
    left_out = set(map(id, gone))
    log["lines"] = [line for line in log["lines"] if id(line) not in left_out]
    return True


def class_of(text: str) -> str:
    """The class of a line of the kernel log."""
    return next((name for name, begins in CLASSES if begins.match(text)), "others")


def _size(data: object) -> int:
    return len(zlib.compress(json.dumps(data).encode(), 6))
