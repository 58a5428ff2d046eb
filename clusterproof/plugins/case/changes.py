"""What `clusterproof watch` reported of nodes, and when: its `changes.jsonl` next to a job's traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clusterproof.plugins.case import Fact, Span, label, one_line
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.case.results import FAILED, keys, lines
from clusterproof.plugins.catalog.causes import HARDWARE
from clusterproof.plugins.core.opened import Budget
from clusterproof.plugins.core.result import HARDWARE_ACTIONS
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.training_run.files import real

KEYS = {"time", "kind", "node", "device", "rule", "verdict", "message"}
CLOSED = "closed"


def is_of(text: str) -> bool:
    """Whether a file contains changes."""
    return keys(text) >= KEYS


def read_file(path: Path, root: Path, name: str, builder: CaseBuilder, budget: Budget) -> None:
    """Add a whole file of changes: one of a watch that runs for good is long."""
    try:
        builder.facts.extend(read(lines(path, root, budget), name))
        builder.count("file of a watch's changes")
    except OSError as wrong:
        builder.lack(f"{name}: {wrong.strerror or wrong}")


def read(text: Iterable[str], source: str) -> Iterator[Fact]:
    """The hardware failures of nodes, each when it was first reported as one; a line that holds none is skipped."""
    failed: set[tuple[str, str, str]] = set()
    for number, line in enumerate(text, 1):
        try:
            change = json.loads(line)
            key = (str(change["node"]), str(change["device"]), str(change["rule"]))
            if change["kind"] == CLOSED:
                failed.discard(key)
            elif change["verdict"] == FAILED and key not in failed:
                failed.add(key)
                yield from _facts(change, *key, f"{source}:{number}")
        except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError):
            continue  # truncated, or of another version


def _facts(change: dict[str, Any], node: str, device: str, rule: str, source: str) -> Iterator[Fact]:
    """The failure, if it is one of hardware. Raises ValueError for one without a time."""
    check = all_checks().get(rule)
    if not label(node) or check is None or check.route.action not in HARDWARE_ACTIONS:
        return
    began = real(change["time"], "time", source)
    message = str(change["message"])
    words = one_line(message if not device or message.startswith(device) else f"{device}: {message}")
    when = Span(began, began + 1.0)
    yield Fact(label(node), HARDWARE, True, words, source, rule, when, "", check.route.action, is_of_run=True)
