"""Headings above the outputs of nodes: those of clush and dshbak, of ansible and pssh, and those that people print."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from clusterproof.plugins.captures import NoCaptureError
from clusterproof.plugins.captures.file_names import are_of_nodes, prefix
from clusterproof.plugins.captures.pieces import command_in, is_raw
from clusterproof.plugins.core.nodeset import NodesetError, expand
from clusterproof.plugins.kubernetes.parse import MAX_BEFORE

MAX_PARTS = 100_000  # outputs of single nodes in one file

_HEADING = re.compile(r"-{15,80}")  # lines above and below node names
_NODES = re.compile(r"([A-Za-z0-9@][\w.,@\[\]-]{0,200000})(?: \(\d{1,6}\))?", re.ASCII)
# Messages of the tool itself, some about nodes: `clush: gpu[3-4] (2): command timeout`; and why ssh did not reach one.
OF_TOOL = re.compile(r"(?:clush|pdsh(?:@\S{1,253})?|dsh): (?P<about>.*)", re.ASCII)
_ABOUT = re.compile(r"(?P<nodes>(?=[^:]*\d)[A-Za-z0-9][\w.,\[\]-]{0,200000})(?: \(\d{1,6}\))?: .*", re.ASCII)
_NAME = r"[A-Za-z0-9][\w.-]{0,252}"
_TITLES = (  # what ansible, and what `pssh -i`, print above each node's output
    re.compile(rf"({_NAME}) \| [A-Z]{{6,11}}!?(?: \| rc=-?\d{{1,5}} >>| => \{{)", re.ASCII),
    re.compile(
        rf"\[\d{{1,6}}\] [\d:]{{8}} \[(?:SUCCESS|FAILURE)\] (?:\S{{1,64}}@)?({_NAME})(?::\d{{1,5}})?(?: .*)?", re.ASCII
    ),
)
_OF_FILES = re.compile(r"==> (\S{1,400}) <==", re.ASCII)  # head and tail, of several files
_OF_PEOPLE = (  # what people print there: `=== gpu001 ===`, `gpu001`, `gpu001:`
    _OF_FILES,
    re.compile(rf"(?:={{2,80}}|-{{2,80}}|#{{1,80}}|\*{{2,80}}|>{{2,80}}) ({_NAME}):?(?: ?[=#*<-]{{1,80}})?", re.ASCII),
    re.compile(rf"({_NAME}):?", re.ASCII),
)
_UNREACHED = re.compile(r"(?=[^:]*\d)[A-Za-z0-9][\w.-]{0,63}: (?:ssh|kex_exchange_identification): .*", re.ASCII)


def under_headings(lines: Sequence[str]) -> dict[str, list[str]]:
    """The text below each node name, in the format of `clush -b` and dshbak: names between lines of hyphens."""
    by_node: dict[str, list[str]] = {}
    parts = 0
    for names, output in _groups(lines):
        parts += len(names)
        if parts > MAX_PARTS:
            raise NoCaptureError(f"a file has more than {MAX_PARTS:,} outputs of nodes")
        for name in names:
            by_node.setdefault(name, []).append(output)
    return by_node


def _groups(lines: Sequence[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The names in each heading, and the text below. All headings use the same line, and some names have a number."""
    headings = [index for index in range(len(lines) - 2) if _is_heading(lines, index)]
    rule = next((lines[index] for index in headings if any(map(str.isdecimal, lines[index + 1]))), "")
    headings = [index for index in headings if lines[index] == rule]
    before = [line for line in lines[: headings[0]] if line and not _failed(line)] if headings else []
    if not headings or len(before) > MAX_BEFORE or any(map(is_raw, before)):
        return
    names: tuple[str, ...] = ()
    begins = 0
    for index in headings:
        if index >= begins:  # text between the lines of two headings is an output of one line
            yield names, "".join(f"{line}\n" for line in lines[begins:index])
            names, begins = _named(lines[index + 1]), index + 3
    yield names, "\n".join(lines[begins:])


def under_titles(lines: Sequence[str]) -> dict[str, list[str]]:
    """The text below each node's name, in the format of ansible or of pssh."""
    return _below(lines, _TITLES)


def under_those_of_people(lines: Sequence[str], least: int) -> dict[str, list[str]]:
    """The text below each name that people have printed, if at least so many names differ only in numbers."""
    by_node = _below(lines, _OF_PEOPLE)
    return by_node if are_of_nodes(by_node, least) else {}


def _below(lines: Sequence[str], forms: Iterable[re.Pattern[str]]) -> dict[str, list[str]]:
    """The text below each title of one form; above the first are only commands, and messages of the tool."""
    for form in forms:
        titles = [(index, match[1]) for index, line in enumerate(lines) if (match := form.fullmatch(line))]
        before = [line for line in lines[: titles[0][0]] if line and command_in(line) is None] if titles else []
        if not titles or not all(map(_is_of_tool, before)):
            continue
        if len(titles) > MAX_PARTS:
            raise NoCaptureError(f"a file has more than {MAX_PARTS:,} outputs of nodes")
        by_node: dict[str, list[str]] = {}
        for (index, title), (end, _) in zip(titles, [*titles[1:], (len(lines), "")], strict=True):
            name = _node_of(title) if form is _OF_FILES else title
            by_node.setdefault(name, []).append("".join(f"{line}\n" for line in lines[index + 1 : end]))
        return by_node
    return {}


def _node_of(path: str) -> str:
    """The node that the name of a file, or its folder, begins with."""
    return prefix(Path(path).name) or Path(path).parent.name or path


def _is_of_tool(line: str) -> bool:
    """Whether a line is a message of the tool that ran the command on the nodes."""
    return bool(OF_TOOL.fullmatch(line) or _failed(line) or line.startswith("[WARNING]: "))


def _failed(line: str) -> re.Match[str] | None:
    """The nodes of which the tool says why they did not answer, or not well; else None."""
    of_tool = OF_TOOL.fullmatch(line)
    return _ABOUT.fullmatch(of_tool["about"]) if of_tool else _UNREACHED.fullmatch(line) and _ABOUT.fullmatch(line)


def unanswered(lines: Iterable[str]) -> Iterator[str]:
    """The nodes that the tool names in its messages. Raises NoCaptureError."""
    parts = 0
    for failed in filter(None, map(_failed, lines)):
        names = _named(failed["nodes"])
        parts += len(names)
        if parts > MAX_PARTS:
            raise NoCaptureError(f"a file has messages about more than {MAX_PARTS:,} nodes")
        yield from names


def _is_heading(lines: Sequence[str], index: int) -> bool:
    rule = lines[index]
    is_rule = rule.startswith("---") and rule == lines[index + 2] and _HEADING.fullmatch(rule)
    return bool(is_rule and _NODES.fullmatch(lines[index + 1]))


def _named(line: str) -> tuple[str, ...]:
    """The nodes in a heading: `gpu[001-003] (3)`; the text itself if it names a group, or too many."""
    names = line.partition(" ")[0]
    try:
        return expand(names)
    except NodesetError:
        return (names,)
