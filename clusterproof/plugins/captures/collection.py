"""Converts a capture's files to each node's evidence, and says how to collect what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from clusterproof.plugins.captures import Layout, NoCaptureError, NodeFiles, layout
from clusterproof.plugins.captures.forms import FORMS
from clusterproof.plugins.captures.merge import completed, latest, merged, of_two_machines
from clusterproof.plugins.captures.outputs import MAX_HEAD, MAX_QUOTED, NOTHING, CollectorPart, first_line, of_text
from clusterproof.plugins.captures.pieces import pieces
from clusterproof.plugins.captures.rotated import in_parts, text_of
from clusterproof.plugins.captures.several import Reader, ill_elsewhere
from clusterproof.plugins.captures.text import decoded, plain
from clusterproof.plugins.captures.to_collect import how_to_collect
from clusterproof.plugins.core.cluster import Cluster
from clusterproof.plugins.core.errors import raised_at
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.core.opened import Budget, opened
from clusterproof.plugins.evidence.kubernetes.facts import NODES
from clusterproof.plugins.evidence.parsing import Form
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.storage import parse as storage

_OF_SLURM = "slurm_node"  # the collector whose worst value counts; within one file, the last
# Finishes a collector's value when every file has been read.
_FINISHED: Mapping[str, Callable[[object], object]] = {"nvml": completed, "mounts": storage.completed}
MAX_WHOLE_BYTES = 2 * 1024**3  # of all files, unpacked; 100 of NVIDIA's bug reports have about 1 billion
SHOWN = 20  # lines on files that were not understood
PROBE = {"source": "capture"}  # in place of the probe's data about itself


@dataclass(frozen=True, slots=True)
class Understood:
    """The evidence in one node's files, and a line for each thing that was not understood."""

    evidence: NodeEvidence
    unknown: tuple[str, ...] = ()
    in_kubernetes: object = None  # the node as kubectl describes it


def understood(
    node: NodeFiles,
    root: Path,
    collectors: Iterable[str],
    budget: Budget | None = None,
    reader: Reader | None = None,
) -> Understood:
    """All evidence in one node's files; every other collector says what to collect."""
    if node.missing:
        return Understood(NodeEvidence(node.name, unreached=Unreached.UNRECORDED, detail=node.missing, probe=PROBE))
    budget = budget or Budget(MAX_WHOLE_BYTES)
    parts: list[CollectorPart] = []
    unknown: list[str] = []
    logs, earlier = in_parts(node.files)
    unknown += [f"{_shown(file, root)}: a kernel log of an earlier boot, which is left out" for file in earlier]
    for files in logs:
        name = _shown(files[-1], root)
        text, unread = text_of(files, root, budget)
        parts_of_file, problems = ([], []) if text is None else _of_text(text, FORMS)
        parts += parts_of_file
        problems = [f"{name}: {problem}" for problem in problems]
        problems += [f"{_shown(file, root)}: {problem}" for file, problem in unread]
        unknown += problems
        if not parts_of_file and not problems:
            unknown.append(f"{name} is none of the known forms{_instead(files[-1], root)}")
    of_part = slurm.FORMS if reader and reader.is_slurms else FORMS
    for file in node.shared:
        text = reader.text_of(file, node.name) if reader else ""
        parts_of_file, problems = _of_part(text, of_part, budget)
        parts += parts_of_file
        unknown += [f"{_shown(file, root)}, of {node.name}: {problem}" for problem in problems]
    values = _values(parts, unknown)
    in_kubernetes = values.pop(NODES, None)
    return Understood(_evidence(node.name, values, collectors), tuple(unknown), in_kubernetes)


def read_layout(path: Path) -> tuple[Layout, Reader]:
    """The nodes of a capture, and the reader of files with several nodes. Raises NoCaptureError."""
    reader = Reader(path if path.is_dir() else path.parent, _is_known, is_alone=path.is_file())
    return layout(path, reader.shows), reader


def _is_known(text: str) -> bool:
    """Whether a text contains a known output."""
    return any(form.recognises(piece.text[:MAX_HEAD]) for piece in pieces(text, FORMS) for form in FORMS)


def read_capture(path: Path, cluster: Cluster, collectors: Iterable[str]) -> tuple[Understood, ...]:
    """The evidence of each node of a cluster; files of no node are reported with the first."""
    try:
        capture, reader = read_layout(path)
    except NoCaptureError as problem:
        missing = NodeEvidence("", unreached=Unreached.UNRECORDED, detail=f"{path}: {problem}")
        return tuple(Understood(replace(missing, node=target.name)) for target in cluster.targets)
    files = {node.name: node for node in capture.nodes}
    collectors, budget = tuple(collectors), Budget(MAX_WHOLE_BYTES)
    understood_nodes = [
        understood(
            files.get(target.name, NodeFiles(target.name, ())), capture.root, collectors, budget=budget, reader=reader
        )
        for target in cluster.targets
    ]
    slurms = {of.evidence.node: of.evidence.collectors.get(_OF_SLURM) for of in understood_nodes}
    ill = ill_elsewhere(
        {of.evidence.node: of.in_kubernetes for of in understood_nodes},
        {node: collected.value for node, collected in slurms.items() if collected},
    )
    return (
        replace(understood_nodes[0], unknown=(*capture.strays, *reader.unclear, *ill, *understood_nodes[0].unknown)),
        *understood_nodes[1:],
    )


def not_understood(understood_nodes: Iterable[Understood], is_redacted: bool = False) -> list[str]:
    """A line for each file that was not fully understood; their number if names are redacted."""
    unknown = [line for node in understood_nodes for line in node.unknown]
    if unknown and is_redacted:
        return [f"capture: not understood: {len(unknown)} of its outputs, whose names are redacted"]
    more = [f"capture: and {len(unknown) - SHOWN} more"] if len(unknown) > SHOWN else []
    return [f"capture: {printable(line, 300)}" for line in unknown[:SHOWN]] + more


def read_text(text: str, forms: Sequence[Form] = FORMS) -> tuple[dict[str, object], list[str]]:
    """The contents of a text by collector, and its problems."""
    parts, problems = _of_text(text, forms)
    return _values(parts, problems), problems


def _of_text(text: str, forms: Sequence[Form]) -> tuple[list[CollectorPart], list[str]]:
    """The contents of a text and its problems; of several outputs the last counts."""
    parts, problems = of_text(text, forms)
    listed = [part for part in parts if part.collector == _OF_SLURM]
    together = slurm.latest((part.rank, part.value) for part in listed)
    others = _latest((part for part in parts if part.collector != _OF_SLURM), problems)
    return [*others, *[CollectorPart(_OF_SLURM, 0, together)] * bool(listed)], problems


def _latest(parts: Iterable[CollectorPart], problems: list[str]) -> Iterator[CollectorPart]:
    """One part for each collector and rank."""
    by_rank: dict[tuple[str, int], list[object]] = {}
    for part in parts:
        by_rank.setdefault((part.collector, part.rank), []).append(part.value)
    for (collector, rank), values in by_rank.items():
        try:
            yield CollectorPart(collector, rank, latest(values))
        except Exception as problem:  # captured files may contain anything
            problems.append(f"{collector}: {type(problem).__name__} in {raised_at(problem)}")


def _of_part(text: str, forms: Sequence[Form], budget: Budget) -> tuple[list[CollectorPart], list[str]]:
    """The contents of one node's part of a file with several nodes, and its problems."""
    try:
        budget.take(len(text))
    except OSError as problem:
        return [], [str(problem)]
    parts, problems = _of_text(text, forms)
    return parts, problems or ([] if parts else [f"it is none of the known forms{first_line(text)}"])


def _instead(file: Path, root: Path) -> str:
    """What a short file contains instead of an output: that the command is missing, or may not be run."""
    with suppress(OSError), opened(file, root) as stream:
        return first_line(plain(decoded(stream.read(MAX_QUOTED + 1))))
    return ""


def _evidence(name: str, values: Mapping[str, object], collectors: Iterable[str]) -> NodeEvidence:
    answers = {collector: _uncollected(collector) for collector in collectors}
    answers |= {collector: Collected(Status.READ, value) for collector, value in values.items()}
    return NodeEvidence(name, dict(sorted(answers.items())), probe=PROBE)


@cache
def _uncollected(collector: str) -> Collected:
    return Collected(Status.UNCOLLECTED, detail=how_to_collect(collector))


def _values(parts: Iterable[CollectorPart], problems: list[str]) -> dict[str, object]:
    """The combined values of all outputs, by collector."""
    by_collector: dict[str, list[tuple[int, object]]] = {}
    for part in (part for part in parts if part.collector != NOTHING):
        by_collector.setdefault(part.collector, []).append((part.rank, part.value))
    values: dict[str, object] = {}
    for collector, ranked in by_collector.items():
        try:
            value = slurm.worst(value for _, value in ranked) if collector == _OF_SLURM else merged(ranked)
            values[collector] = _FINISHED.get(collector, _itself)(value)
            if why := of_two_machines(value) if collector == "nvml" else "":
                problems.append(why)
        except Exception as problem:  # captured files may contain anything
            problems.append(f"{collector}: {type(problem).__name__} in {raised_at(problem)}")
    return values


def _itself(value: object) -> object:
    return value


def _shown(file: Path, root: Path) -> str:
    """A file's path for display, relative to the capture's folder."""
    return str(file.relative_to(root)) if file.is_relative_to(root) else file.name
