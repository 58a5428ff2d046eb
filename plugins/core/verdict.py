"""The five verdicts, and how a check pronounces those that an assert cannot."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn


class Verdict(str, Enum):
    """What a check says of a node. The value is the word in every report.

    `letter` is for grids and progress lines; `rank` is 0 for the worst. Incomplete outranks a concern: what was not
    read may be worse.
    """

    PASS = "pass", ".", 3
    CONCERN = "concern", "C", 2
    FAIL = "fail", "F", 0
    INCOMPLETE = "incomplete", "I", 1
    NOT_APPLICABLE = "not applicable", "-", 4

    letter: str
    rank: int

    def __new__(cls, word: str, letter: str = "", rank: int = 0) -> Verdict:
        """One of them; each is asked for its letter and rank in every run some million times."""
        verdict = str.__new__(cls, word)
        verdict._value_ = word
        verdict.letter = letter
        verdict.rank = rank
        return verdict

    @property
    def is_finding(self) -> bool:
        """Whether somebody is to look at it."""
        return self not in (Verdict.PASS, Verdict.NOT_APPLICABLE)

    __hash__ = str.__hash__  # an enumeration's own is slow, and verdicts are looked up as often


PROVEN = frozenset({Verdict.PASS, Verdict.CONCERN})  # without one of these nothing was checked, and nothing is fit


class Failed(AssertionError):  # noqa: N818 - an outcome, as its siblings are
    """A failure with more to it than its message.

    `action` is what it asks for, where that is not what the check's remedy names; `cause` as of `Incomplete`.
    """

    def __init__(self, message: str, action: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.action = action
        self.cause = cause


class Concern(Exception):  # noqa: N818 - an outcome, not an error
    """Worth a look; does not gate."""


class Incomplete(Exception):  # noqa: N818
    """It could not be measured. Never a pass, and never by itself a reason to drain.

    `cause` is the same text wherever many checks have one cause, so that reports fold them into one line.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class NotApplicable(Exception):  # noqa: N818
    """The question makes no sense on this node; the message says why."""


def fail(message: str, action: str = "", cause: str = "") -> NoReturn:
    """Say that something failed, as `assert` does, and what this asks for where the check's remedy says another."""
    raise Failed(message, action, cause)


def concern(message: str) -> NoReturn:
    """Say that something is worth a look. The message reads `observed; expected …`."""
    raise Concern(message)


def incomplete(message: str, cause: str = "") -> NoReturn:
    """Say that the evidence for a verdict is missing, and what would supply it."""
    raise Incomplete(message, cause)


def not_applicable(message: str) -> NoReturn:
    """Say why the question makes no sense on this node."""
    raise NotApplicable(message)
