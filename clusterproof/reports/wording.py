"""A result in words, as every report has it."""

from __future__ import annotations

import re
from typing import Protocol

from clusterproof.plugins.core.result import Result

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
