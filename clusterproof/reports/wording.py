"""A result in words, as every report has it; which action it asks for, and in which order the actions stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Protocol

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.result import ACTIONS, OF_HARDWARE, UNREACHABLE, Result
from clusterproof.plugins.core.verdict import PROVEN, Verdict

MAX_ATTRIBUTE = 500  # characters of a message; the element's text has all


class Owned(Protocol):
    """What has an owner: a result, or what a check says of itself."""

    @property
    def owner(self) -> str:
        """The skill."""

    @property
    def section(self) -> str:
        """Its section, or empty."""


def in_words(result: Result) -> str:
    """What a person needs of a result: observed, expected, how to see it by hand, who owns it, what to do."""
    seen = [("", f"{result.node}: {line}") for line in result.message.split("\n")]  # no line begins with a node's words
    rows = [
        *seen,
        ("by hand", result.evidence),
        ("owner", owner_of(result)),
        ("means", result.meaning),
        ("do", result.remedy),
    ]
    return "\n".join(f"{word}: {words}" if word else words for word, words in rows if words)


def owner_of(result: Result) -> str:
    """Whose a result is: a site's own words, the skill on HyperPod, or `hardware`."""
    return result.team or result.skill


def skill_beside(result: Result) -> str:
    """The skill that a finding is routed to, where its owner is somebody else: for small print."""
    return result.skill if result.team and result.team != result.skill else ""


def skill_of(data: Owned) -> str:
    """`hyperpod-node-debugger § G`."""
    return f"{data.owner} § {data.section}" if data.section else data.owner


def counted(number: int, what: str) -> str:
    """`1 check`, `1,200 checks`."""
    return f"{number:,} {what if number == 1 else f'{what}s'}"


def legal(text: str) -> str:
    """The text without what XML 1.0 cannot hold."""
    return _ILLEGAL.sub("�", text)


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


COMMON_CAUSE = "find the common cause"
CANNOT_REACH = "cannot reach"
NOT_PROVEN = "not proven"
OTHER_FILES = "rules that need other files"
LOOK_AT = "look at"  # what is worth it; it keeps no node from work
_KNOWN = (COMMON_CAUSE, *ACTIONS, CANNOT_REACH, NOT_PROVEN, LOOK_AT)
_OF_WHAT = ("node", "pair", "run", "cluster")


def asked(result: Result, of_all: Collection[str]) -> tuple[str, str]:
    """The action that a finding asks for, and the reason; `of_all` are the checks that all nodes fail."""
    name = result.check.rpartition(".")[2]
    if result.is_of_unreachable:
        return CANNOT_REACH, result.cause.removeprefix(UNREACHABLE)
    if result.verdict is Verdict.FAIL:
        action = result.action or ACTIONS[-1]
        return (COMMON_CAUSE if action in OF_HARDWARE and result.check in of_all else action), name
    if result.needs_other_files:
        return NOT_PROVEN, OTHER_FILES
    return (NOT_PROVEN, result.cause or name) if result.verdict is Verdict.INCOMPLETE else (LOOK_AT, name)


def place(action: str, of_what: str) -> tuple[int, int]:
    """Where an action stands, the gravest first; one that only a site knows behind all of ours."""
    return _KNOWN.index(action if action in _KNOWN else CANNOT_REACH), _OF_WHAT.index(of_what)


def place_of(result: Result, of_all: Collection[str]) -> tuple[int, int]:
    """Where the action stands that a finding asks for."""
    return place(asked(result, of_all)[0], of_what(result))


def of_what(result: Result) -> str:
    """What it is about: a node, a pair, a run, or the cluster."""
    if result.is_of_run:
        return "run"
    return "cluster" if result.is_of_cluster else "pair" if result.is_of_pair else "node"


def failed_by_all(results: Sequence[Result], catalog: Catalog) -> set[str]:
    """The checks that all measured nodes fail, where these are not few: hardware fails one by one."""
    least = catalog.threshold("configuration.suspected_minimum_nodes")
    failed = Counter(result.check for result in results if result.verdict is Verdict.FAIL and result.is_of_node)
    suspected = {check for check, count in failed.items() if count >= least}
    passed = {
        result.check
        for result in results
        if result.check in suspected and result.verdict in PROVEN and result.is_of_node
    }
    return suspected - passed
