"""The suite's own results on nodes: a `results.jsonl` next to a job's traces."""

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

KEYS = ({"check", "node", "verdict"}, {"schema", "describes"})  # of a result, or of a description
FAILED = Verdict.FAIL.value
FOUND = (FAILED, *(verdict.value for verdict in PROVEN))
LONGEST_LINE = 1 << 20  # bytes
_CHECK = re.compile(r"[a-z][a-z0-9_]{0,40}\.[a-z0-9_]{1,80}")


def is_of(text: str) -> bool:
    """Whether a file contains results."""
    keys_of_first = keys(text)
    return any(keys_of_first >= of_kind for of_kind in KEYS)


def keys(text: str) -> Set[str]:
    """The keys of the object on a file's first line; none if that is no JSON."""
    try:
        document = json.loads(text[:LONGEST_LINE].partition("\n")[0])
    except (ValueError, RecursionError):
        return frozenset()
    return document.keys() if isinstance(document, dict) else frozenset()


def lines(path: Path, root: Path, budget: Budget) -> Iterator[str]:
    """The lines of a whole file that no other user can write; one that is too long is cut. Raises OSError."""
    with opened(path, root) as file:
        if doubt := distrust(path, os.fstat(file.fileno())):
            raise OSError(errno.EACCES, doubt)
        while content := file.readline(LONGEST_LINE):
            budget.take(len(content))
            yield content.decode("utf-8", "replace")


def read_file(path: Path, root: Path, name: str, builder: CaseBuilder, budget: Budget) -> None:
    """Add a whole results file, line by line: a run of many nodes is long."""
    invalid: list[int] = []
    try:
        for node, fact in read(lines(path, root, budget), name, invalid):
            builder.nodes_checked[node] = None
            builder.facts.extend(filter(None, (fact,)))
        builder.count("file of results")
        if invalid:
            seen = f"{number_of(len(invalid), 'line')} that {'are' if invalid[1:] else 'is'} no result"
            builder.lack(f"{name}: {seen}; expected one in JSON on each")
    except OSError as wrong:
        builder.lack(f"{name}: {wrong.strerror or wrong}")


def read(text: Iterable[str], source: str, invalid: list[int] | None = None) -> Iterator[tuple[str, Fact | None]]:
    """The nodes of which a check found out something, and their hardware failures, at the time when the check ran.

    The numbers of lines that are no JSON are added to `invalid`.
    """
    for number, line in enumerate(text, 1):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            if invalid is not None and line.strip():
                invalid.append(number)
            continue
        node = label(str(document.get("node", ""))) if isinstance(document, dict) else ""
        if node and document.get("verdict") in FOUND:
            yield node, _fact(document, node, f"{source}:{number}")


def _fact(record: Mapping[str, Any], node: str, source: str) -> Fact | None:
    check, message, action = (record.get(key) for key in ("check", "message", "action"))
    if record["verdict"] != FAILED or action not in HARDWARE_ACTIONS:
        return None
    if not isinstance(check, str) or not isinstance(message, str) or not _CHECK.fullmatch(check):
        return None
    text = one_line(message.replace("\n", " "))
    return Fact(node, HARDWARE, True, text, source, check, Span(), "", str(action), is_of_run=True)
