"""From the files of a capture to the evidence of each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clusterproof.plugins.captures.commands import how_to_collect
from clusterproof.plugins.captures.folder import NoCaptureError, NodeFiles, layout
from clusterproof.plugins.captures.forms import FORMS
from clusterproof.plugins.captures.merge import merged
from clusterproof.plugins.captures.pieces import pieces
from clusterproof.plugins.captures.text import MAX_BYTES, text_of
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.printable import printable
from clusterproof.plugins.evidence.form import CaptureError, Form
from clusterproof.plugins.evidence.gpu.parse_completed import completed
from clusterproof.plugins.evidence.storage import parse_fstab as fstab

# What is left to do with a collector's value when every file has been read.
_FINISHED: Mapping[str, Callable[[object], object]] = {"nvml": completed, "mounts": fstab.completed}
SHOWN = 20  # lines about files that were not understood
PROBE = {"source": "capture"}  # in the place of what the probe says of itself


@dataclass(frozen=True, slots=True)
class Understood:
    """The evidence in the files of one node, and what could not be understood: one line for each."""

    evidence: NodeEvidence
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """What one output holds for one collector."""

    collector: str
    rank: int
    value: object


def understood(node: NodeFiles, root: Path, collectors: Iterable[str], forms: Sequence[Form] = FORMS) -> Understood:
    """All evidence in one node's files; every other collector says what to collect."""
    data: list[_Part] = []
    unknown: list[str] = []
    for file in node.files:
        name = _shown(file, root)
        found, problems = _of_file(file, forms)
        data += found
        unknown += [f"{name}: {problem}" for problem in problems]
        if not found and not problems:
            unknown.append(f"{name} is none of the known forms")
    return Understood(_evidence(node.name, data, collectors), tuple(unknown))


def read_capture(path: Path, cluster: Cluster, collectors: Iterable[str]) -> tuple[Understood, ...]:
    """The evidence of each node of a cluster; a file that is of no node is named with the first."""
    try:
        found = layout(path)
    except NoCaptureError as problem:
        gone = NodeEvidence("", unreached=Unreached.LOST, detail=f"{path}: {problem}")
        return tuple(Understood(replace(gone, node=target.name)) for target in cluster.targets)
    files = {node.name: node for node in found.nodes}
    collectors = tuple(collectors)
    data = [understood(files.get(one.name, NodeFiles(one.name, ())), found.root, collectors) for one in cluster.targets]
    return (replace(data[0], unknown=(*found.strays, *data[0].unknown)), *data[1:])


def not_understood(data: Iterable[Understood], is_redacted: bool = False) -> list[str]:
    """A line for each file of which nothing, or not all, was understood; where names are redacted, how many."""
    unknown = [line for node in data for line in node.unknown]
    if unknown and is_redacted:
        return [f"capture: not understood: {len(unknown)} of its outputs, whose names are redacted"]
    more = [f"capture: and {len(unknown) - SHOWN} more"] if len(unknown) > SHOWN else []
    return [f"capture: {printable(line, 300)}" for line in unknown[:SHOWN]] + more


def read_text(text: str, forms: Sequence[Form] = FORMS) -> tuple[dict[str, object], list[str]]:
    """What a text holds, by collector, and what is wrong with it."""
    data, problems = _of_text(text, forms)
    return _values(data), problems


def _of_file(file: Path, forms: Sequence[Form]) -> tuple[list[_Part], list[str]]:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as problem:
        return [], [problem.strerror or str(problem)]
    data, problems = _of_text(text_of(content), forms)
    if len(content) > MAX_BYTES:
        problems.append(f"is longer than {MAX_BYTES:,} bytes, and was read no further")
    return data, problems


def _of_text(text: str, forms: Sequence[Form]) -> tuple[list[_Part], list[str]]:
    data: list[_Part] = []
    problems: list[str] = []
    for piece in pieces(text, forms):
        for form in forms:
            if not form.recognises(piece.text):
                continue
            try:
                collectors = form.read(piece.text)
            except CaptureError as problem:
                problems.append(f"{form.name}: {problem}")
            else:
                data += [_Part(collector, form.rank, value) for collector, value in collectors.items()]
    return data, problems


def _evidence(name: str, data: Sequence[_Part], collectors: Iterable[str]) -> NodeEvidence:
    values = _values(data)
    answers = {collector: Collected(Status.UNCOLLECTED, detail=how_to_collect(collector)) for collector in collectors}
    answers |= {collector: Collected(Status.READ, value) for collector, value in values.items()}
    return NodeEvidence(name, dict(sorted(answers.items())), probe=PROBE)


def _values(data: Iterable[_Part]) -> dict[str, object]:
    """What all outputs together hold, by collector."""
    by_collector: dict[str, list[tuple[int, object]]] = {}
    for one in data:
        by_collector.setdefault(one.collector, []).append((one.rank, one.value))
    return {
        collector: _FINISHED.get(collector, _itself)(merged(several)) for collector, several in by_collector.items()
    }


def _itself(value: object) -> object:
    return value


def _shown(file: Path, root: Path) -> str:
    """A file as people call it: from the capture's folder on."""
    return str(file.relative_to(root)) if file.is_relative_to(root) else file.name
