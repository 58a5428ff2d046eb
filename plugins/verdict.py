"""The five verdicts, and how a check pronounces those that an assert cannot."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn


class Verdict(str, Enum):
    """What a check says of a node. The value is the word in every report."""

    PASS = "pass"  # noqa: S105 - a verdict, not a secret
    CONCERN = "concern"
    FAIL = "fail"
    INCOMPLETE = "incomplete"
    NOT_APPLICABLE = "not applicable"

    @property
    def letter(self) -> str:
        """One letter for grids and progress lines."""
        return _LETTERS[self]

    @property
    def rank(self) -> int:
        """Worst first. Incomplete outranks a concern: what was not read may be worse."""
        return _RANKS[self]


_LETTERS = {
    Verdict.PASS: ".",
    Verdict.CONCERN: "C",
    Verdict.FAIL: "F",
    Verdict.INCOMPLETE: "I",
    Verdict.NOT_APPLICABLE: "-",
}
_WORST_FIRST = (Verdict.FAIL, Verdict.INCOMPLETE, Verdict.CONCERN, Verdict.PASS, Verdict.NOT_APPLICABLE)
_RANKS = {verdict: rank for rank, verdict in enumerate(_WORST_FIRST)}


class Concern(Exception):  # noqa: N818 - an outcome, not an error
    """Worth a look; does not gate."""


class Incomplete(Exception):  # noqa: N818
    """It could not be measured. Never a pass, and never by itself a reason to drain.

    `cause` is the same text wherever one thing is to blame for many checks, so that reports fold them into one line.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class NotApplicable(Exception):  # noqa: N818
    """The question makes no sense on this node; the message says why."""


def concern(message: str) -> NoReturn:
    """Say that something is worth a look. The message reads `observed; expected …`."""
    raise Concern(message)


def incomplete(message: str) -> NoReturn:
    """Say that the evidence for a verdict is missing, and what would supply it."""
    raise Incomplete(message)


def not_applicable(message: str) -> NoReturn:
    """Say why the question makes no sense on this node."""
    raise NotApplicable(message)
