"""Folds and expands node names as ClusterShell does: `gpu[001-016,020]`; and which words may be a host or a user."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache

from clusterproof.plugins.core.errors import ClusterproofError

MAX_NAMES = 100_000  # ClusterShell itself has no limit: gpu[1-99999999] never ends
_LONGEST_NAME = 253  # characters; the longest name that DNS carries
_FOLDED_IN_ALL_DIMENSIONS = 64  # parts; 1000 names like ip-10-0-1-2 took 1.8 s, 64 take 15 ms
_EXAMPLE = "gpu[001-016,020]"

_FOREIGN = re.compile(r"[^A-Za-z0-9._\-\[\],/]")
_NODE = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)+")  # up to a comma outside brackets
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18})(?:/([0-9]{1,18}))?)?")
_NUMBER = re.compile(r"([0-9]+)")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*")
_ADDRESS = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*")  # a name, IPv4, or IPv6 with its zone


class NodesetError(ClusterproofError, ValueError):
    """Text that names no nodes; the one-line message says what was wrong and what is right."""


def expand(text: str) -> tuple[str, ...]:
    """The names that `text` stands for, each once, in nodeset order. Raises NodesetError.

    The order is by the text around the numbers, then by the numbers. Each part is expanded alone, because ClusterShell
    compares names with several numbers, like EC2's, all with all.
    """
    _reject_what_is_not_a_nodeset(text)
    parts = _NODE.findall(text)
    count = sum(map(_count, parts))
    if count > MAX_NAMES:
        raise NodesetError(f"{text!r:.80} names {count:,} nodes; expected at most {MAX_NAMES:,}")
    names = dict.fromkeys(name for part in parts for name in (_names_of(part) if "[" in part else (part,)))
    return tuple(names if len(parts) == 1 else sorted(names, key=_in_order))


def _names_of(part: str) -> Iterator[str]:
    """The names of one part, in nodeset order. Raises NodesetError."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    try:
        yield from map(str, NodeSet(part, resolver=RESOLVER_NOGROUP))
    except (NodeSetException, ValueError) as problem:
        raise NodesetError(f"{part!r:.80} is not a nodeset: {problem}; expected the form {_EXAMPLE}") from None


def _in_order(name: str) -> tuple[str, list[tuple[int, str]]]:
    pieces = _NUMBER.split(name)
    return "%s".join(pieces[::2]), [(len(number), number) for number in pieces[1::2]]


def fold(names: Iterable[str]) -> str:
    """The nodeset of `names`, for people. Never raises: names that no nodeset can hold are appended."""
    return _folded(frozenset(names))


def within(nodes: str, most: int) -> str:
    """A folded nodeset in about so many characters: whole names and ranges, then how many names are left out.

    `gpu[0001-0100,0128] and 37 more`; brackets are closed, and at least the first name or range is shown.
    """
    if len(nodes) <= most:
        return nodes
    parts = _NODE.findall(nodes)
    kept: list[str] = []
    left = sum(map(_names_in, parts))
    left_chars = most - len(f" and {left:,} more")
    for part in parts:
        shown = _part_within(part, left_chars, is_first=not kept)
        if shown:
            kept.append(shown)
            left -= _names_in(shown)
            left_chars -= len(shown) + 1
        if shown != part:
            break
    return f"{','.join(kept)} and {left:,} more" if left else ",".join(kept)


def _part_within(part: str, most: int, *, is_first: bool) -> str:
    """As many ranges of the last brackets of one part as fit; empty if none does."""
    if len(part) <= most:
        return part
    before, bracket, rest = part.rpartition("[")
    inside, _, behind = rest.partition("]")
    if not bracket or not _is_name(_BRACKETS.sub("0", part)):
        return _cut_name(part) if is_first else ""
    last = inside.rfind(",", 0, max(0, most - len(before) - len(behind) - 1))
    shown = f"{before}[{inside[:last] if last > 0 else inside.partition(',')[0]}]{behind}"
    return shown if is_first or len(shown) <= most else ""


def _cut_name(name: str) -> str:
    """Shorten a name that is too long for DNS: it is no nodeset, and may have any length."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def _names_in(part: str) -> int:
    """How many names one part stands for; one if it is no nodeset."""
    try:
        return _count(part)
    except NodesetError:
        return 1


@lru_cache(maxsize=256)  # reports name the same nodes again and again
def _folded(known: frozenset[str]) -> str:
    odd = sorted(name for name in known if not _is_name(name))
    folded = _fold_parts(_fold_one_number(known.difference(odd)))
    return ",".join([folded, *odd] if folded else odd)


def _fold_parts(parts: list[str]) -> str:
    """Fold the remaining numbers if they are few: in many dimensions the work is quadratic."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    if len(parts) > _FOLDED_IN_ALL_DIMENSIONS:
        return ",".join(parts)
    return str(NodeSet.fromlist(parts, resolver=RESOLVER_NOGROUP))


def _fold_one_number(names: Iterable[str]) -> list[str]:
    """For each shape of name (`ip-#-#.ec#`), fold the one number that leaves the fewest parts."""
    shapes: dict[tuple[str, ...], list[list[str]]] = defaultdict(list)
    for name in sorted(names):
        pieces = _NUMBER.split(name)  # text, number, text, number, …, text
        shapes[tuple(pieces[::2])].append(pieces)
    return [part for shape in sorted(shapes) for part in _fold_shape(shapes[shape])]


def _fold_shape(rows: list[list[str]]) -> list[str]:
    from ClusterShell.RangeSet import RangeSet

    if len(rows[0]) == 1:
        return [row[0] for row in rows]
    candidates = []
    for column in range(1, len(rows[0]), 2):
        groups: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in rows:
            groups["".join(row[:column]), "".join(row[column + 1 :])].append(row[column])
        candidates.append(groups)
    fewest = min(candidates, key=len)
    return [
        f"{before}{numbers[0] if len(numbers) == 1 else f'[{RangeSet.fromlist(numbers)}]'}{after}"
        for (before, after), numbers in fewest.items()
    ]


def _is_name(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def _reject_what_is_not_a_nodeset(text: str) -> None:
    shown = f"{text!r:.80}"
    if not text:
        raise NodesetError(f"an empty nodeset; expected names, such as {_EXAMPLE}")
    foreign = _FOREIGN.search(text)
    if foreign:
        raise NodesetError(
            f"{shown} has {foreign.group()!r} in it; expected names of letters, digits, '.', '_' and '-', "
            f"separated by commas, with ranges in brackets: {_EXAMPLE}"
        )
    if ",," in text or text.startswith(",") or text.endswith(","):
        raise NodesetError(f"{shown} has a comma with no name beside it; expected the form {_EXAMPLE}")


def _count(node: str) -> int:
    """How many names one comma-free part stands for, without expanding it. Raises NodesetError."""
    outside = _BRACKETS.sub("0", node)
    if "[" in outside or "]" in outside:
        raise NodesetError(f"{node!r:.80} has a bracket without its partner; expected the form {_EXAMPLE}")
    if not _is_name(outside):
        raise NodesetError(
            f"{node!r:.80} is not a name; expected a letter, digit or '_' first, no '/' outside brackets, "
            f"and at most {_LONGEST_NAME} characters"
        )
    count = 1
    for inside in _BRACKETS.findall(node):
        count *= sum(_length(part, node) for part in inside.split(","))
    return count


def _length(part: str, node: str) -> int:
    match = _RANGE.fullmatch(part)
    if not match:
        raise NodesetError(f"{node!r:.80} has the range {part!r:.40}; expected numbers: [1-8] or [001,005]")
    first, last, step = match.group(1), match.group(2) or match.group(1), int(match.group(3) or 1)
    padded = any(number.startswith("0") and len(number) > 1 for number in (first, last))
    if padded and len(first) != len(last):
        raise NodesetError(f"{node!r:.80}: {first} and {last} differ in width; expected both with as many digits")
    if int(last) < int(first) or step < 1:
        raise NodesetError(f"{node!r:.80}: the range {part} is empty; expected the smaller number first")
    return (int(last) - int(first)) // step + 1


def is_user(text: str) -> bool:
    """Whether `text` may be a login name: free of shell syntax, because a ProxyCommand's shell sees it."""
    return _USER.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether `text` may be a host name or an address: a ProxyCommand's shell sees it."""
    return _ADDRESS.fullmatch(text) is not None
