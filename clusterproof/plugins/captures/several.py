"""Files that show several nodes: as pdsh, clush and dshbak print them, and as kubectl describes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from clusterproof.plugins.captures import Layout, node_name, stem
from clusterproof.plugins.captures.text import MAX_BYTES, command_in, decoded, flush, plain, undecorated, unpacked
from clusterproof.plugins.captures.to_collect import how_to_collect
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.core.opened import opened
from clusterproof.plugins.evidence.kernel_log.parse import DRIVERS
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS, NODES
from clusterproof.plugins.kubernetes.parse import DESCRIBED

HEAD_BYTES = 256 * 1024  # in which a file shows whether it is of several nodes
MAX_NODES = 4_096  # in one file
MAX_BEFORE = 5  # lines above the first heading: in what goes on for longer it may be a user's who prints one

_HEADING = re.compile(r"-{15,80}")  # above and below the names of nodes
_NODES = re.compile(r"(?=\D{0,300}\d)([A-Za-z0-9][\w.,\[\]-]{0,2000})(?: \(\d{1,6}\))?", re.ASCII)
_BEHIND_NAME = re.compile(r"(?=[\w.-]{0,63}\d)(?=[\w.-]{0,63}[A-Za-z.])([A-Za-z0-9][\w.-]{0,63}):(?: (.*)|)", re.ASCII)
_OF_TOOL = re.compile(r"(?:clush|pdsh(?:@\S{1,253})?|dsh): ")  # what it says itself


@dataclass(slots=True)
class Reader:
    """Reads which nodes files show; `is_known` says whether a text has an output of a known form."""

    root: Path
    is_known: Callable[[str], bool] = bool
    texts: dict[Path, dict[str, str]] = field(default_factory=dict)

    def shows(self, file: Path) -> tuple[str, ...]:
        """The nodes that a file says it is of; none where it is one node's output like others."""
        head, is_cut = self._text(file, HEAD_BYTES)
        head = head.rpartition("\n")[0] if is_cut else head
        if not self._by_node(head, file.name):
            return ()
        by_node = self._by_node(self._text(file, MAX_BYTES)[0], file.name)
        self.texts[file] = {node_name(name, "node"): text for name, text in by_node.items()}
        return tuple(self.texts[file])

    def describes(self, file: Path) -> bool:
        """Whether a file has a node as kubectl describes it."""
        return bool(DESCRIBED.search("\n".join(flush(self._text(file, HEAD_BYTES)[0]))))

    def _by_node(self, text: str, file_name: str) -> dict[str, str]:
        lines = flush(text)
        described, rest = _described(lines)
        if described:
            own = {stem(file_name): rest} if self.is_known(rest) else {}
            return {**own, **described} if len(described) > 1 else dict.fromkeys(described, text)
        by_node = _under_headings(lines)
        if not by_node and (by_node := _behind_names(lines)) and any(map(self.is_known, undecorated(text))):
            return {}
        return by_node if any(map(self.is_known, by_node.values())) else {}

    def _text(self, file: Path, most: int) -> tuple[str, bool]:
        """The text of a file, and whether it goes on; empty where it cannot be read."""
        with suppress(OSError), opened(file, self.root) as stream:
            content = stream.read(most + 1)
            whole = unpacked(content[:most])
            return plain(decoded(whole[:most])), max(len(content), len(whole)) > most
        return "", False


def is_of_kubernetes(layout: Layout) -> bool:
    """Whether any of its files has a node as kubectl describes it."""
    reader = Reader(layout.root)
    return any(map(reader.describes, {file for node in layout.nodes for file in (*node.files, *node.shared)}))


def control_plane(name: str, described: Mapping[str, object]) -> NodeEvidence:
    """The nodes of a cluster as kubectl describes them, of each what its own files have; nothing else was asked."""
    found = [
        {**entry, "name": node}
        for node, value in described.items()
        if isinstance(value, dict)
        for entry in value["nodes"]
        if entry["name"] == node or len(value["nodes"]) == 1
    ]
    if not found:
        return NodeEvidence(name)
    rest = {other: Collected(Status.UNCOLLECTED, detail=how_to_collect(other)) for other in COLLECTORS}
    nodes = {"asked_at": max(entry["asked_at"] for entry in found), "nodes": found}
    return NodeEvidence(name, {**rest, NODES: Collected(Status.READ, nodes)})


def _described(lines: list[str]) -> tuple[dict[str, str], str]:
    """What kubectl says of each node, up to a command that was typed behind it; and the rest."""
    by_node: dict[str, list[str]] = {"": []}
    name = ""
    for line, below in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("Name:") and (found := DESCRIBED.match(f"{line}\n{below}")) and len(by_node) <= MAX_NODES:
            name = found[1]
            by_node[name] = []
        elif name and command_in(line) is not None:
            name = ""
        by_node[name].append(line)
    rest, *described = ("\n".join(some) for some in by_node.values())
    return dict(zip([*by_node][1:], described, strict=True)), rest


def _under_headings(lines: list[str]) -> dict[str, str]:
    """What stands below the names of each node, as `clush -b` and dshbak write them between lines of hyphens."""
    by_node: dict[str, str] = {}
    for names, output in _groups(lines):
        for name in names[: MAX_NODES - len(by_node)]:
            by_node[name] = by_node[name] + output if name in by_node else output
    return by_node


def _groups(lines: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    names: tuple[str, ...] = ()
    begins = 0
    for place, line in enumerate(lines):
        is_heading = line.startswith("---") and place + 2 < len(lines) and line == lines[place + 2]
        if is_heading and _HEADING.fullmatch(line) and (found := _named(lines[place + 1])):
            if not names and sum(map(bool, lines[:place])) > MAX_BEFORE:
                return
            yield names, "\n".join(lines[begins:place]) + "\n"
            names, begins = found, place + 3
    yield names, "\n".join(lines[begins:])


def _named(line: str) -> tuple[str, ...]:
    """The nodes of a heading: `gpu[001-003] (3)`."""
    found = _NODES.fullmatch(line)
    with suppress(NodesetError):
        return expand(found[1]) if found else ()
    return ()


def _behind_names(lines: Iterable[str]) -> dict[str, str]:
    """What stands behind the name of each node, where each line has one; the driver's words alone are nobody's."""
    by_node: dict[str, list[str]] = {}
    for line in filter(None, lines):
        found = _BEHIND_NAME.fullmatch(line)
        if _OF_TOOL.match(line) or (not found and command_in(line) is not None):
            continue
        if not found or DRIVERS.match(line) or DRIVERS.match(found[2] or "") or len(by_node) > MAX_NODES:
            return {}
        by_node.setdefault(found[1], []).append(found[2] or "")
    return {name: "\n".join(some) + "\n" for name, some in by_node.items()} if len(by_node) > 1 else {}
