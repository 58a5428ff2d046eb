"""One round of a gate, as its process leaves it to the one that stays: what was found, written and asked."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from clusterproof.plugins.core.record import record
from clusterproof.plugins.kubernetes.gate.health import FALSE, UNKNOWN, Health
from clusterproof.plugins.kubernetes.gate.write import Written
from clusterproof.plugins.kubernetes.gate.writer import of_nodes

FILE = "round.json"


@record
class Round:
    """`began` in seconds since 1970; `unfit` and `unknown` by node the reason, `requests` by method and status."""

    began: float
    seconds: float
    statuses: Mapping[str, int]
    unfit: Mapping[str, str]
    unknown: Mapping[str, str]
    reported: Mapping[str, float]  # by node when its last report was read, in seconds since 1970
    lines: Sequence[str]
    changes: Mapping[str, str]  # by node what became of its condition
    problems: Sequence[str]
    requests: Mapping[str, int]

    def said(self) -> Iterator[str]:
        """A line for the round, and for each change and problem."""
        first, *others = self.lines or ("nothing is written",)
        yield f"{first} ({sum(self.requests.values())} requests, {self.seconds:.1f} s)"
        alike: dict[str, list[str]] = defaultdict(list)
        for node, words in self.changes.items():
            alike[words].append(node)
        yield from (of_nodes(names, words) for words, names in alike.items())
        yield from others
        yield from (f"not written: {problem}" for problem in self.problems)


def round_of(
    began: float,
    now: float,
    found: Mapping[str, Health],
    reported: Mapping[str, float],
    written: Written,
    requests: Mapping[str, int],
) -> Round:
    """What a round leaves that found this and wrote that."""
    return Round(
        began,
        round(now - began, 3),
        dict(Counter(health.status for health in found.values())),
        _reasons(found, FALSE),
        _reasons(found, UNKNOWN),
        dict(reported),
        list(written.lines),
        dict(written.changes),
        list(written.problems),
        dict(requests),
    )


def _reasons(found: Mapping[str, Health], status: str) -> Mapping[str, str]:
    return {node: health.reason for node, health in found.items() if health.status == status}


def leave(folder: Path, one: Round) -> None:
    """Put it where the process that stays looks, whole. Raises OSError."""
    part = folder / f".{FILE}.{os.getpid()}"
    part.write_text(json.dumps(asdict(one)))
    part.replace(folder / FILE)


def taken(folder: Path) -> Round | None:
    """What the last round has left there, and is not there any more; None where it left nothing."""
    path = folder / FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    path.unlink()
    return Round(**json.loads(text))
