"""The result of one round of a gate, and the verdicts that stay valid: files that its processes leave each other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from clusterproof.plugins.core.record import as_json, record
from clusterproof.plugins.evidence.recording import write_whole
from clusterproof.plugins.kubernetes.gate import FALSE, UNKNOWN, Health
from clusterproof.plugins.kubernetes.gate.object_writer import lines_by_message
from clusterproof.plugins.kubernetes.gate.write import WriteOutcome

FILE = "round.json"
STANDING = "standing.json"


@record
class Round:
    """`began` in seconds since 1970; `unfit` and `unknown`: reasons by node; `requests`: by method and status."""

    began: float
    seconds: float
    statuses: Mapping[str, int]
    unfit: Mapping[str, str]
    unknown: Mapping[str, str]
    reported: Mapping[str, float]  # when each node's last report was read, in seconds since 1970
    lines: Sequence[str]
    changes: Mapping[str, str]  # by node: what happened to its condition
    problems: Sequence[str]
    requests: Mapping[str, int]
    silent: Sequence[str] = ()  # nodes without a result, for example because no log could be read
    is_open: bool = False  # whether a node is still to be evaluated, or evaluated again
    is_pending: bool = False  # whether a finding is still to be written

    def log_lines(self) -> Iterator[str]:
        """A line for the round, and for each change and problem."""
        first, *others = self.lines or ("nothing is written",)
        yield f"{first} ({sum(self.requests.values())} requests, {self.seconds:.1f} s)"
        yield from lines_by_message(self.changes)
        yield from others
        yield from (f"not written: {problem}" for problem in self.problems)


def round_of(
    began: float,
    now: float,
    health_by_node: Mapping[str, Health],
    reported: Mapping[str, float],
    written: WriteOutcome,
    requests: Mapping[str, int],
    silent: Collection[str] = (),
) -> Round:
    """The round with these findings and writes."""
    return Round(
        began,
        round(now - began, 3),
        dict(Counter(health.status for health in health_by_node.values())),
        _reasons(health_by_node, FALSE),
        _reasons(health_by_node, UNKNOWN),
        dict(reported),
        list(written.lines),
        dict(written.changes),
        list(written.problems),
        dict(requests),
        sorted(silent),
        bool(silent) or written.is_open or bool(written.problems),
        written.is_pending,
    )


def _reasons(health_by_node: Mapping[str, Health], status: str) -> Mapping[str, str]:
    return {node: health.reason for node, health in health_by_node.items() if health.status == status}


def store(folder: Path, gate_round: Round) -> None:
    """Write it atomically for the main process. Raises OSError."""
    write_whole(folder / FILE, json.dumps(as_json(gate_round)))


def pop_stored(folder: Path) -> Round | None:
    """Read and remove what the last round left; None if it left nothing."""
    path = folder / FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    path.unlink()
    return Round(**json.loads(text))


@record
class KeptVerdict:
    """A verdict that is valid until its node is evaluated again; `began` is when that began, in seconds since 1970."""

    health: Health
    began: float


def keep_verdicts(folder: Path, verdicts: Mapping[str, KeptVerdict]) -> None:
    """Store the valid verdicts, by node. Raises OSError."""
    write_whole(folder / STANDING, json.dumps({node: as_json(verdict) for node, verdict in verdicts.items()}))


def kept_verdicts(folder: Path) -> dict[str, KeptVerdict]:
    """The stored verdicts; none if there are none, or the file is damaged."""
    try:
        record = json.loads((folder / STANDING).read_bytes())
        return {node: KeptVerdict(Health(**kept["health"]), float(kept["began"])) for node, kept in record.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
