"""Files with outputs of several nodes: from pdsh, clush, ansible and others, and listings of kubectl and Slurm."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterproof.plugins.captures import Layout, NoCaptureError, node_name
from clusterproof.plugins.captures.file_names import OF_DEVICE, stem
from clusterproof.plugins.captures.headings import (
    MAX_PARTS,
    OF_TOOL,
    unanswered,
    under_headings,
    under_those_of_people,
    under_titles,
)
from clusterproof.plugins.captures.pieces import DIVIDER, command_in, pieces
from clusterproof.plugins.captures.text import (
    MAX_BYTES,
    decoded,
    flush,
    is_archive,
    most_bytes,
    plain,
    undecorated,
    unpacked,
)
from clusterproof.plugins.captures.to_collect import how_to_collect
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status
from clusterproof.plugins.core.nodeset import fold, within
from clusterproof.plugins.core.opened import Budget, opened
from clusterproof.plugins.evidence.kernel_log.parse import DRIVERS
from clusterproof.plugins.evidence.kubernetes.facts import COLLECTORS, NODES
from clusterproof.plugins.evidence.parsing import objects
from clusterproof.plugins.evidence.slurm import parse as slurm
from clusterproof.plugins.evidence.slurm.facts import MAX_NAMES, OUT_OF_USE, POWERED_DOWN, states_of
from clusterproof.plugins.kubernetes.parse import DESCRIBED, MAX_NODES, is_bad, nodes_in
from clusterproof.plugins.kubernetes.parse_get import LISTED, listed_in

HEAD_BYTES = 256 * 1024  # the part of a file that shows whether it contains several nodes
MAX_BYTES_IN_ALL = 512 * 1024**2  # of all files with several nodes, unpacked: they are kept until their nodes are read

_BEHIND_NAME = re.compile(r"(?=[\w.-]{0,63}\d)(?=[\w.-]{0,63}[A-Za-z.])([A-Za-z0-9][\w.-]{0,63}):(?: (.*)|)", re.ASCII)


@dataclass(slots=True)
class Reader:
    """Finds which nodes files contain; `is_known` says whether a text contains a known output.

    If the capture is a single file of Slurm's, its nodes are those that Slurm lists.
    """

    root: Path
    is_known: Callable[[str], bool]
    budget: Budget = field(default_factory=lambda: Budget(MAX_BYTES_IN_ALL))
    is_alone: bool = False
    is_slurms: bool = False  # whether it is such a file: other parsers ignore nodes' reasons in it
    unclear: tuple[str, ...] = ()  # problems in such a file
    _texts: dict[Path, dict[str, list[str]]] = field(default_factory=dict)

    def shows(self, file: Path) -> tuple[str, ...]:
        """The nodes named in a file; none if it is an ordinary output of one node.

        Raises OSError, and NoCaptureError if it is too large.
        """
        head, is_cut = _text(file, self.root, HEAD_BYTES)
        head = head.rpartition("\n")[0] if is_cut else head
        if not self._by_node(head, file.name, is_cut=is_cut):
            return ()
        text, is_cut = _text(file, self.root, MAX_BYTES)
        by_node = self._by_node(text, file.name)
        if by_node and is_cut:
            raise NoCaptureError(f"{file.name} shows several nodes, and is longer than {MAX_BYTES:,} bytes")
        if by_node:
            self.budget.take(len(text))
        self._texts[file] = {node_name(name, "node"): texts for name, texts in by_node.items()}
        return tuple(self._texts[file])

    def text_of(self, file: Path, name: str) -> str:
        """The part of a file with several nodes that is about one of them."""
        return "".join(self._texts.get(file, {}).get(name, ()))

    def _by_node(self, text: str, file_name: str, *, is_cut: bool = False) -> dict[str, list[str]]:
        """The texts of each node. Text cut off at the start may belong to the first one."""
        self.is_slurms = False
        lines = flush(text)
        described, rest = _described("\n".join(lines))
        if len(described) > MAX_NODES:
            raise NoCaptureError(f"a file describes more than {MAX_NODES:,} nodes")
        if len(described) == 1:
            return {name: [text] for name in described}
        if described:
            own = stem(file_name)
            return described | ({own: [rest, DIVIDER, *described.get(own, ())]} if self.is_known(rest) else {})
        by_node = under_headings(lines) or under_titles(lines)
        is_behind = not by_node
        if is_behind:
            by_node = under_those_of_people(lines, 1 if is_cut else 2) or _behind_names(lines)
            if is_cut and len(by_node) == 1:
                return by_node
        by_node |= {name: [] for name in (unanswered(lines) if by_node else ()) if name not in by_node}
        known_texts = set(filter(self.is_known, {text for texts in by_node.values() for text in texts}))
        known = sum(not known_texts.isdisjoint(texts) for texts in by_node.values())
        is_one_nodes = len(by_node) == 1 or (known == 1 and any(map(self.is_known, undecorated(text))))
        if not known or all(map(OF_DEVICE.fullmatch, by_node)) or (is_behind and is_one_nodes):
            return self._of_slurm(lines, file_name) if self.is_alone else {}
        return by_node

    def _of_slurm(self, lines: Sequence[str], file_name: str) -> dict[str, list[str]]:
        """What sinfo or scontrol report about each node; none if there is another output as well."""
        by_node: dict[str, list[str]] = {}
        rest: list[str] = []
        unclear: list[str] = []
        parts, too_many = 0, None
        again = [piece.text for piece in pieces("\n".join(lines), slurm.FORMS)]
        for text in reversed(dict.fromkeys(reversed(again))):  # the last occurrence of what a command in a loop repeats
            if too_many:
                rest.append(slurm.unlisted_in(text))
                continue
            listed = slurm.listed_in(text)
            for name, outputs in listed.by_node.items():
                by_node.setdefault(name, []).extend(f"{DIVIDER}{output}\n" for output in outputs)
            parts += sum(map(len, listed.by_node.values())) + len(listed.unclear)
            if len(by_node) > MAX_NODES:
                too_many = NoCaptureError(f"a file lists more than {MAX_NODES:,} nodes")
            elif parts > MAX_PARTS:
                too_many = NoCaptureError(f"a file has more than {MAX_PARTS:,} records and rows of Slurm's nodes")
            unclear += listed.unclear
            rest.append(listed.rest)
        self.is_slurms = bool(by_node) and not self.is_known(DIVIDER.join(rest))
        if self.is_slurms and too_many:
            raise too_many
        self.unclear = tuple(f"{file_name}: {line}" for line in unclear * self.is_slurms)
        return by_node if self.is_slurms else {}


def is_of_kubernetes(layout: Layout) -> bool:
    """Whether any of its files contains a node described by kubectl."""
    files = {file for node in layout.nodes for file in (*node.files, *node.shared)}
    heads = (_text(file, layout.root, HEAD_BYTES)[0] for file in files)
    return any(_described("\n".join(flush(head)))[0] for head in heads)


def control_plane(name: str, described: Mapping[str, object]) -> NodeEvidence:
    """The nodes of a cluster as kubectl describes them, each from its own files; no other collector was run."""
    entries = [
        {**entry, "name": node}
        for node, value in described.items()
        if isinstance(value, dict)
        for entry in value["nodes"]
        if entry["name"] == node or len(value["nodes"]) == 1
    ]
    rest = {other: Collected(Status.UNCOLLECTED, detail=how_to_collect(other)) for other in COLLECTORS}
    if not entries:
        return NodeEvidence(name, rest if any(described.values()) else {})
    nodes = {"asked_at": max(entry["asked_at"] for entry in entries), "nodes": entries}
    return NodeEvidence(name, {**rest, NODES: Collected(Status.READ, nodes)})


def ill_elsewhere(in_kubernetes: Mapping[str, object], in_slurm: Mapping[str, object]) -> Iterator[str]:
    """A line for nodes that are not well as only the files of other nodes say, which are evidence of those alone."""
    for nodes, ill, words in (
        (in_kubernetes, _is_ill_in_kubernetes, "Kubernetes has {} not ready or cordoned"),
        (in_slurm, _is_ill_in_slurm, "Slurm has {} out of use"),
    ):
        listed = {node: objects(value["nodes"]) for node, value in nodes.items() if isinstance(value, dict)}
        known = {
            node for node, rows in listed.items() if len(rows) == 1 or any(row.get("name") == node for row in rows)
        }
        for node, rows in listed.items():
            names = {str(row.get("name")) for row in rows if len(rows) > 1 and ill(row)} - known
            known |= names
            if names:
                seen = words.format(within(fold(names), MAX_NAMES))
                yield f"{node}: {seen}, as only files of other nodes say; expected that list as a capture by itself"


def _is_ill_in_kubernetes(row: Mapping[str, Any]) -> bool:
    conditions = objects(row.get("conditions"))
    is_bad_in_one = any(is_bad({"type": of["kind"], "status": of["status"]}) for of in conditions)
    return is_bad_in_one or row.get("cordoned") is True


def _is_ill_in_slurm(row: Mapping[str, Any]) -> bool:
    return bool(states_of(str(row.get("state"))) & OUT_OF_USE - POWERED_DOWN)


def _described(text: str) -> tuple[dict[str, list[str]], str]:
    """kubectl's description of each node, up to a command typed after it; and the rest."""
    described: dict[str, list[str]] = {}
    rest: list[str] = []
    for piece in pieces(text, ()) if DESCRIBED.search(text) or LISTED.search(text) else ():
        nodes = nodes_in(piece.text.split("\n"))
        described |= {name: ["\n".join(lines)] for name, lines in nodes.items()}
        listed = {} if nodes else listed_in(piece.text)
        for name, row in listed.items():
            described.setdefault(name, []).append(f"{DIVIDER}{row}")
        if not nodes and not listed:
            rest.append(piece.text)
    return described, DIVIDER.join(rest)


def _behind_names(lines: Iterable[str]) -> dict[str, list[str]]:
    """The text after each node's name, if each line has one; the driver's messages alone belong to no node."""
    by_node: dict[str, list[str]] = {}
    for line in filter(None, lines):
        match = _BEHIND_NAME.fullmatch(line)
        if OF_TOOL.match(line) or (not match and command_in(line) is not None):
            continue
        if not match or DRIVERS.match(line) or DRIVERS.match(match[2] or "") or len(by_node) > MAX_NODES:
            return {}
        by_node.setdefault(match[1], []).append(match[2] or "")
    return {name: ["".join(f"{line}\n" for line in some)] for name, some in by_node.items()}


def _text(file: Path, root: Path, most: int) -> tuple[str, bool]:
    """The text of a file, and whether there is more; empty if it cannot be read, or is an archive."""
    with suppress(OSError), opened(file, root) as stream:
        content = stream.read(most + 1)
        data = unpacked(content[:most])
        if is_archive(data):
            return "", False
        is_cut = max(len(content), len(data)) > most or (data != content and len(data) >= most_bytes(content))
        return plain(decoded(data[:most])), is_cut
    return "", False
