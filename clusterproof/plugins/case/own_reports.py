"""What the suite itself said of nodes, next to a job's traces: `results.jsonl` of a run, `changes.jsonl` of a watch."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from clusterproof.plugins.case import Fact, Span, label, one_line
from clusterproof.plugins.case.builder import CaseBuilder
from clusterproof.plugins.catalog.causes import HARDWARE
from clusterproof.plugins.core.message import number_of
from clusterproof.plugins.core.opened import Budget, distrust, opened
from clusterproof.plugins.core.result import HARDWARE_ACTIONS
from clusterproof.plugins.core.verdict import PROVEN, Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.training_run.files import real

RESULTS = ({"check", "node", "verdict"}, {"schema", "describes"})  # the keys of a result, or of a description
CHANGES = ({"time", "kind", "node", "device", "rule", "verdict", "message"},)  # and of a change
CLOSED = "closed"
FAILED = Verdict.FAIL.value
FOUND = (FAILED, *(verdict.value for verdict in PROVEN))
LONGEST_LINE = 1 << 20  # bytes
_CHECK = re.compile(r"[a-z][a-z0-9_]{0,40}\.[a-z0-9_]{1,80}")


def is_of(text: str) -> bool:
    """Whether the suite wrote a file about nodes."""
    return _begins_with(text, (*RESULTS, *CHANGES))


def _begins_with(text: str, kinds: Iterable[Set[str]]) -> bool:
    """Whether the object on a file's first line has all keys of one of these kinds."""
    keys = _keys(text)
    return any(keys >= kind for kind in kinds)


def _keys(text: str) -> Set[str]:
    """The keys of the object on a file's first line; none if that is no JSON."""
    try:
        document = json.loads(text[:LONGEST_LINE].partition("\n")[0])
    except (ValueError, RecursionError):
        return frozenset()
    return document.keys() if isinstance(document, dict) else frozenset()


def _lines(path: Path, root: Path, budget: Budget) -> Iterator[str]:
    """The lines of a whole file that no other user can write; one that is too long is cut. Raises OSError."""
    with opened(path, root) as file:
        if doubt := distrust(path, os.fstat(file.fileno())):
            raise OSError(errno.EACCES, doubt)
        while content := file.readline(LONGEST_LINE):
            budget.take(len(content))
            yield content.decode("utf-8", "replace")


def read_file(path: Path, root: Path, text: str, name: str, builder: CaseBuilder, budget: Budget) -> None:
    """Add a whole file that begins with this text, line by line: one of many nodes, or of a long watch, is long."""
    try:
        if _begins_with(text, RESULTS):
            _take_results(_lines(path, root, budget), name, builder)
        else:
            builder.facts.extend(changes(_lines(path, root, budget), name))
            builder.count("file of a watch's changes")
    except OSError as wrong:
        builder.lack(f"{name}: {wrong.strerror or wrong}")


def _take_results(lines: Iterable[str], name: str, builder: CaseBuilder) -> None:
    invalid: list[int] = []
    for node, fact in results(lines, name, invalid):
        builder.nodes_checked[node] = None
        builder.facts.extend(filter(None, (fact,)))
    builder.count("file of results")
    if invalid:
        seen = f"{number_of(len(invalid), 'line')} that {'are' if invalid[1:] else 'is'} no result"
        builder.lack(f"{name}: {seen}; expected one in JSON on each")


def results(text: Iterable[str], source: str, invalid: list[int]) -> Iterator[tuple[str, Fact | None]]:
    """The nodes of which a check found out something, and their hardware failures, at the time when the check ran.

    The numbers of lines that are no JSON are added to `invalid`.
    """
    for number, line in enumerate(text, 1):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            if line.strip():
                invalid.append(number)
            continue
        node = label(str(document.get("node", ""))) if isinstance(document, dict) else ""
        if node and document.get("verdict") in FOUND:
            yield node, _of_result(document, node, f"{source}:{number}")


def _of_result(record: Mapping[str, Any], node: str, source: str) -> Fact | None:
    check, message, action = (record.get(key) for key in ("check", "message", "action"))
    if record["verdict"] != FAILED or action not in HARDWARE_ACTIONS:
        return None
    if not isinstance(check, str) or not isinstance(message, str) or not _CHECK.fullmatch(check):
        return None
    text = one_line(message.replace("\n", " "))
    return Fact(node, HARDWARE, True, text, source, check, Span(), "", str(action), is_of_run=True)


def changes(text: Iterable[str], source: str) -> Iterator[Fact]:
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
                yield from _of_change(change, *key, f"{source}:{number}")
        except (ArithmeticError, ValueError, TypeError, LookupError, RecursionError):
            continue  # truncated, or of another version


def _of_change(change: dict[str, Any], node: str, device: str, rule: str, source: str) -> Iterator[Fact]:
    """The failure, if it is one of hardware. Raises ValueError for one without a time."""
    check = all_checks().get(rule)
    if not label(node) or check is None or check.route.action not in HARDWARE_ACTIONS:
        return
    began = real(change["time"], "time", source)
    message = str(change["message"])
    words = one_line(message if not device or message.startswith(device) else f"{device}: {message}")
    when = Span(began, began + 1.0)
    yield Fact(label(node), HARDWARE, True, words, source, rule, when, "", check.route.action, is_of_run=True)
