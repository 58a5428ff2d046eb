"""What a run says of itself: which network carried it, why it failed, and the node that its text names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from clusterproof.plugins.benchmarks.meters.meter import MeterSettings, Output
from clusterproof.plugins.core.message import printable
from clusterproof.plugins.evidence.pairs import is_believable

LONGEST = 300
LONGEST_LINE = 1000
MAX_LINES = 200_000

_HOST = r"(?<![\w.-])([A-Za-z0-9][\w.-]{0,252})"
_MISSING = re.compile(rf"clusterproof: {_HOST}: (.{{1,{LONGEST}}})", re.ASCII)
_LIBRARY = re.compile(r"error while loading shared libraries: ")
_WHERE_LIBRARIES_ARE = "expected its folder in LD_LIBRARY_PATH: by a module that is loaded first, or --meter-env"
_TELLING = re.compile(
    r"\b(?:error|failed|failure|refused|denied|cannot|could not|unable to|not found|no such|killed|aborted|timed out"
    r"|exited on signal|has lost communication)\b",
    re.IGNORECASE,
)
_OWN_FAULT = re.compile(  # of the GPUs and libraries of the node itself; what is said of a peer is about the peer
    r"\bcuda (?:failure|error)|\bECC\b|CUDA-capable|out of memory|illegal memory|\bNVML\b|libcuda|Xid", re.IGNORECASE
)
_NAMES_ONE = (  # the strongest first; each names one node
    re.compile(rf"^clusterproof: {_HOST}: ", re.ASCII),
    re.compile(rf"{_HOST}: Test CUDA failure\b", re.ASCII),
    re.compile(rf"\bon node {_HOST} exited on signal", re.ASCII),
    re.compile(rf"\bRemote daemon: \S{{1,60}} on node {_HOST}", re.ASCII),
    re.compile(rf"\btarget node:\s{{1,20}}{_HOST}", re.ASCII),
    re.compile(rf"\bNode failure on {_HOST}", re.ASCII),
    re.compile(rf"\b[Nn]ode {_HOST} (?:has )?failed\b", re.ASCII),
    re.compile(rf"\bTask launch for \S{{1,60}} failed on node {_HOST}", re.ASCII),
    re.compile(rf"^ssh: connect to host {_HOST} port", re.ASCII),
    re.compile(rf"^ssh: Could not resolve hostname {_HOST}", re.ASCII),
    re.compile(rf"\bsrun: error: {_HOST}: tasks? [\d,-]{{1,200}}: ", re.ASCII),
)
_WARNS = re.compile(rf"{_HOST}:\d{{1,10}}:\d{{1,10}} \[\d{{1,4}}\] .{{0,300}}?NCCL WARN (.*)", re.ASCII)
EFA = "efa"


def one_line(text: str) -> str:
    """Text of a node as one short line that a terminal can show."""
    return printable(" ".join(text[: LONGEST * 4].split()))[:LONGEST]


def problem_of(output: Output, data: Iterable[str] = ()) -> str:
    """Why it failed: how it ended, and the line that says most. `data` are the problems that a parser found."""
    if output.exit is None:
        ended = "it did not end in its time"
    elif output.exit < 0:
        ended = f"signal {-output.exit} ended it"
    else:
        ended = f"it ended with {output.exit}" if output.exit else ""
    return one_line("; ".join(part for part in (ended, _said(output.text, data)) if part))


def of_largest(settings: MeterSettings, busbw_gb_per_s: float | None, size_bytes: int, data: Sequence[str] = ()) -> str:
    """What is wrong with the bandwidth of the largest size; empty: nothing. `data` as in `problem_of`."""
    if busbw_gb_per_s is None:
        return one_line("; ".join(["no row of its table has a bandwidth", *data[:1]]))
    if settings.size_bytes and size_bytes != settings.size_bytes:
        return f"its largest size is {size_bytes} bytes; expected {settings.size_bytes}"
    if not is_believable(busbw_gb_per_s):
        return f"its busbw is {busbw_gb_per_s:g} GB/s; expected more than 0, and what a network can do"
    return ""


def culprit_in(text: str) -> str:
    """The one node that the text names as the cause; empty where it names none, or several alike."""
    lines = _lines(text)
    named = [_named(pattern, lines) for pattern in _NAMES_ONE[:2]]
    named.append({found[1] for found in map(_WARNS.search, lines) if found and _OWN_FAULT.search(found[2])})
    named += [_named(pattern, lines) for pattern in _NAMES_ONE[2:]]
    nodes = next(filter(None, named), set())
    return nodes.pop().rstrip(".") if len(nodes) == 1 else ""


def _named(pattern: re.Pattern[str], lines: Sequence[str]) -> set[str]:
    return {found[1] for found in map(pattern.search, lines) if found}


def _said(text: str, data: Iterable[str]) -> str:
    lines = [line for line in _lines(text) if any(char.isalnum() for char in line)]
    missing = next((found[0] for found in map(_MISSING.search, lines) if found), "")
    library = next(filter(_LIBRARY.search, lines), "")
    if library and not missing:
        return f"{library}; {_WHERE_LIBRARIES_ARE}"
    first = missing or next(iter(data), "") or next(filter(_TELLING.search, lines), "")
    return first or (lines[-1] if lines else "it printed nothing")


def _lines(text: str) -> list[str]:
    return [line[:LONGEST_LINE].strip() for line in text.split("\n", MAX_LINES)[:MAX_LINES]]


def efa_devices(count: int | str) -> str:
    """`efa, 32 devices`."""
    return f"{EFA}, {count} device{'' if str(count) == '1' else 's'}"


def proven_network(sent_bytes: Mapping[str, int], carried_bytes: int) -> str:
    """The network whose devices sent at least what the run carried; empty where the counters do not account for it.

    The device that sent most decides which: one Ethernet device by its name, EFA's by their number.
    """
    if carried_bytes <= 0 or not sent_bytes:
        return ""
    most = max(sent_bytes, key=lambda name: sent_bytes[name])
    kind, _, device = most.partition(":")
    alike = {name: sent for name, sent in sent_bytes.items() if name.partition(":")[0] == kind and sent > 0}
    if kind != EFA and sent_bytes[most] >= carried_bytes:
        return device or most
    if sum(alike.values()) < carried_bytes:
        return ""
    share = sent_bytes[most] // 10  # a device that sent far less than the busiest carried something else
    carrying = sorted(name.partition(":")[2] for name, sent in alike.items() if sent >= share)
    return efa_devices(len(carrying)) if kind == EFA else ", ".join(carrying)
