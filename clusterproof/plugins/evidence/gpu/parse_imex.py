"""Parses `nvidia-imex-ctl -N`: a table, or JSON with -j."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.parsing import CaptureError, Form, document_in, short

MAX_NODES = 1024
LETTERS = {  # of the table's legend, in the words of the JSON
    "I": "INVALID",
    "N": "NEVER_CONNECTED",
    "R": "RECOVERING",
    "D": "DISCONNECTED",
    "A": "AUTHENTICATING",
    "!V!": "VERSION_MISMATCH",
    "!M!": "NODE_MAP_MISMATCH",
    "C": "CONNECTED",
}

_NODE = re.compile(
    r"^Node #(\d{1,4})\s{1,8}- (\S{1,100})\s{1,80}- ([A-Z_]{2,40})\s{0,60}(?:- Version: (\S{1,40}))?", re.MULTILINE
)
_ROW = re.compile(r"^\s{1,12}(\d{1,4})((?:\s{1,12}[^\s\d]{1,4}){1,1024})\s*$", re.MULTILINE)
_STATE = re.compile(r"^Domain State: ([A-Z_]{2,40})\s*$", re.MULTILINE)
_WORD = re.compile(r"[A-Z_]{2,40}")
_VERSION = re.compile(r"\d[\w.-]{0,39}|NO_GPU")


@record
class ImexNode:
    """One node of a domain as seen by another; values not shown are empty.

    `links` has a word for each of its connections, by their numbers.
    """

    number: int
    host: str
    host_name: str
    status: str
    version: str
    links: Mapping[int, str]


@record
class ImexDomain:
    """The state of a domain (UP, DEGRADED, DOWN), and its nodes."""

    state: str
    nodes: tuple[ImexNode, ...]


def read_domain(text: str) -> ImexDomain:
    """What nvidia-imex-ctl printed, in either form. Raises CaptureError."""
    domain = _of_json(text) if "{" in text else _of_table(text)
    if not domain.nodes:
        raise CaptureError("nvidia-imex-ctl names no node of its domain")
    return domain


def _of_json(text: str) -> ImexDomain:
    document = document_in(text)
    nodes = document.get("nodes")
    rows = [(int(key), entry) for key, entry in _entries(nodes) if key.isdecimal() and len(key) <= 4]
    return ImexDomain(
        short(document.get("status")), tuple(_node(number, entry) for number, entry in sorted(rows, key=_number))
    )


def _number(row: tuple[int, Mapping[str, object]]) -> int:
    return row[0]


def _node(number: int, entry: Mapping[str, object]) -> ImexNode:
    links = {
        int(key): _shown(_WORD, link.get("status"))
        for key, link in _entries(entry.get("connections"))
        if key.isdecimal() and len(key) <= 4
    }
    host, host_name = (short(entry.get(key)) for key in ("host", "hostName"))
    status, version = _shown(_WORD, entry.get("status")), _shown(_VERSION, entry.get("version"))
    return ImexNode(number, host, host_name, status, version, links)


def _shown(form: re.Pattern[str], value: object) -> str:
    """A value of this form; empty where it is none, as `N/A`."""
    word = short(value)
    return word if form.fullmatch(word) else ""


def _entries(data: object) -> list[tuple[str, Mapping[str, object]]]:
    """The objects of a JSON object, by key."""
    if not isinstance(data, dict):
        return []
    return [(str(key), entry) for key, entry in list(data.items())[:MAX_NODES] if isinstance(entry, dict)]


def _of_table(text: str) -> ImexDomain:
    rows = {int(row[1]): row[2].split() for row in _ROW.finditer(text)}
    state = _STATE.search(text)
    if not state:
        raise CaptureError("it has no line of the domain's state, it may be cut")
    nodes = tuple(
        ImexNode(
            int(row[1]),
            row[2],
            "",
            row[3],
            _shown(_VERSION, row[4]),
            {at: LETTERS.get(letter, "") for at, letter in enumerate(rows.get(int(row[1]), ()))},
        )
        for row in _NODE.finditer(text)
    )
    return ImexDomain(state[1], nodes[:MAX_NODES])


def is_imex(text: str) -> bool:
    """Whether this is the output of `nvidia-imex-ctl -N`, with or without -j."""
    return bool(_NODE.search(text) and _STATE.search(text)) or _is_json(text)


def _is_json(text: str) -> bool:
    if '"connections"' not in text or '"nodes"' not in text:
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and isinstance(document.get("nodes"), dict) and "status" in document


def read_imex(text: str) -> Mapping[str, object]:
    """The collector `imex`, of which only the domain is known. Raises CaptureError."""
    read_domain(text)
    return {"imex": {"domain": {"command": "nvidia-imex-ctl -N", "exit": 0, "output": text}}}


FORMS = (Form("nvidia-imex-ctl -N", is_imex, read_imex),)
