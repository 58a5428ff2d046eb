"""What the suite itself found on nodes: a `results.jsonl` that lies beside what a job left."""

from __future__ import annotations

import json
from collections.abc import Iterator

from clusterproof.plugins.case.records import Fact, Span, label
from clusterproof.plugins.catalog.causes import HARDWARE
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.result import OF_HARDWARE

KEYS = ({"check", "node", "verdict"}, {"schema", "describes"})  # of the first line: a result, or what describes some
FAILED = "fail"


def is_of(text: str) -> bool:
    """Whether a file is one of results."""
    try:
        data = json.loads(text[:1_000_000].partition("\n")[0])
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and any(data.keys() >= keys for keys in KEYS)


def read(text: str, source: str) -> Iterator[Fact]:
    """The checks that failed for want of sound hardware; when they ran is not when the job ended."""
    for number, line in enumerate(text.splitlines(), 1):
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(data, dict) or data.get("verdict") != FAILED or data.get("action") not in OF_HARDWARE:
            continue
        node, check, message = (data.get(key) for key in ("node", "check", "message"))
        if isinstance(node, str) and isinstance(check, str) and isinstance(message, str):
            words = printable(message.replace("\n", " ")[:160])
            yield Fact(label(node), HARDWARE, True, words, f"{source}:{number}", check, Span(), "", str(data["action"]))
