"""The five verdicts, and how a check reports findings: by ending, or along the way."""

from __future__ import annotations

import sys
from contextvars import ContextVar
from enum import Enum
from types import TracebackType

from clusterproof.plugins.core.typed import NoReturn


class Verdict(str, Enum):
    """What a check concludes about a node. The value is the word used in every report.

    `letter` is for grids and progress lines; `rank` is 0 for the worst. Incomplete outranks a concern: what could not
    be read may be worse.
    """

    PASS = "pass", ".", 3
    CONCERN = "concern", "C", 2
    FAIL = "fail", "F", 0
    INCOMPLETE = "incomplete", "I", 1
    NOT_APPLICABLE = "not applicable", "-", 4

    letter: str
    rank: int

    def __new__(cls, word: str, letter: str = "", rank: int = 0) -> Verdict:
        """Create a member with plain attributes: letter and rank are read millions of times in a run."""
        verdict = str.__new__(cls, word)
        verdict._value_ = word
        verdict.letter = letter
        verdict.rank = rank
        return verdict

    @property
    def is_finding(self) -> bool:
        """Whether somebody should look at it."""
        return self not in (Verdict.PASS, Verdict.NOT_APPLICABLE)

    __hash__ = str.__hash__  # Enum's own hash is slow, and verdicts are looked up often


PROVEN = frozenset({Verdict.PASS, Verdict.CONCERN})  # without one of these nothing was checked, so nothing is fit
EXIT_FAILED, EXIT_INCOMPLETE = 1, 10  # exit codes by the worst verdict; pytest's own go up to 6


class Failed(AssertionError):  # noqa: N818 - an outcome, as its siblings are
    """A failure with details beyond its message.

    `action` is what it asks for, if it differs from the check's remedy; `cause` as in `Incomplete`.
    """

    def __init__(self, message: str, action: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.action = action
        self.cause = cause


class Concern(Exception):  # noqa: N818 - an outcome, not an error
    """Worth a look; does not gate. `cause` as in `Incomplete`."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class Incomplete(Exception):  # noqa: N818
    """It could not be measured. Never a pass, and never by itself a reason to drain.

    `cause` is the same text for all checks with one cause, so that reports fold them into one line.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class NotApplicable(Exception):  # noqa: N818
    """The question makes no sense on this node; the message says why."""


class Several(Exception):  # noqa: N818
    """More than one of these, in the order in which the check reported them."""

    def __init__(self, outcomes: tuple[BaseException, ...]) -> None:
        super().__init__("\n".join(str(outcome) for outcome in outcomes))
        self.outcomes = outcomes


def fail(message: str, action: str = "", cause: str = "") -> NoReturn:
    """End the check, or its current part, as `assert` does; `action` overrides that of the check's remedy."""
    raise Failed(message, action, cause)


def concern(message: str) -> NoReturn:
    """End the check, or its current part: this is worth a look. The message reads `observed; expected …`."""
    raise Concern(message)


def incomplete(message: str, cause: str = "") -> NoReturn:
    """End the check, or its current part: evidence is missing; say what would supply it."""
    raise Incomplete(message, cause)


def not_applicable(message: str) -> NoReturn:
    """End the check, or its current part: say why it does not apply to this node."""
    raise NotApplicable(message)


def fail_if(seen: object, message: str, action: str = "", cause: str = "") -> None:
    """If `seen` is true, report a failure as `fail` does, and continue."""
    _evaluated(Failed(message, action, cause) if seen else None)


def concern_if(seen: object, message: str, cause: str = "") -> None:
    """If `seen` is true, report a concern as `concern` does, and continue."""
    _evaluated(Concern(message, cause) if seen else None)


class Part:
    """`with part:` records however this part of a check ends, and the check continues after it.

    An unreadable fact leaves only that part incomplete.
    """

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: object, outcome: BaseException | None, _trace: TracebackType | None) -> bool:
        """Record the outcome. Raises it if nothing is recording, or if it is no outcome of a check."""
        recording = _recording.get()
        said = outcome if isinstance(outcome, Exception) else _said_by_pytest(outcome)
        if recording is None or (said is None and outcome is not None):
            return False
        recording.add(said)
        return True


def _said_by_pytest(outcome: BaseException | None) -> Exception | None:
    """The verdict that `pytest.skip` or `pytest.fail` stands for; None for all else."""
    pytest = sys.modules.get("pytest") if outcome is not None else None
    if pytest and isinstance(outcome, pytest.skip.Exception):
        return NotApplicable(str(outcome))
    return Failed(str(outcome)) if pytest and isinstance(outcome, pytest.fail.Exception) else None


part = Part()


class Recording:
    """`with Recording() as said:` collects what a check reports without ending."""

    def __init__(self) -> None:
        self.outcomes: list[BaseException] = []
        self.is_evaluated = False  # whether any part of the check applied

    def __enter__(self) -> Recording:
        self._token = _recording.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _recording.reset(self._token)

    def add(self, outcome: BaseException | None) -> None:
        """Record the outcome of a part of the check; None if it found nothing."""
        self.is_evaluated = self.is_evaluated or not isinstance(outcome, NotApplicable)
        if outcome is not None:
            self.outcomes.append(outcome)

    def take(self, last: BaseException | None) -> list[BaseException]:
        """Return everything recorded up to this end of the check, and reset; empty if it passed."""
        if last is None and not self.outcomes:
            self.is_evaluated = False
            return []
        outcomes = [*self.outcomes, *([last] if last else [])]
        applicable = [outcome for outcome in outcomes if not isinstance(outcome, NotApplicable)]
        is_well = self.is_evaluated and last is None
        self.outcomes, self.is_evaluated = [], False
        return applicable or ([] if is_well else outcomes[:1])


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


def _evaluated(outcome: BaseException | None) -> None:
    recording = _recording.get()
    if recording is not None:
        recording.add(outcome)
    elif outcome is not None:  # under a debugger, or called by hand
        raise outcome
