"""The five verdicts, and how a check reports findings: by an exception at its end, or with `part` before that."""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum
from types import TracebackType

from clusterproof.plugins.core.typed import NoReturn


class Verdict(str, Enum):
    """A check's verdict on a node. The value is the word in every report.

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
EXIT_FAILED, EXIT_INCOMPLETE = 1, 10  # exit codes by the worst verdict; pytest's own end at 6


class Failed(AssertionError):  # noqa: N818 - an outcome, as its siblings are
    """A failure with a cause or an action of its own.

    `action` is what it asks for, where that is not what the check's remedy names; `cause` as of `Incomplete`.
    """

    def __init__(self, message: str, action: str = "", cause: str = "") -> None:
        super().__init__(message)
        self.action = action
        self.cause = cause


class Concern(Exception):  # noqa: N818 - an outcome, not an error
    """Worth a look; does not gate. `cause` as of `Incomplete`."""

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class Incomplete(Exception):  # noqa: N818
    """It could not be measured. Never a pass, and never by itself a reason to drain.

    `cause` is the same text wherever many checks have one cause, so that reports fold them into one line.
    """

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self.cause = cause


class NotApplicable(Exception):  # noqa: N818
    """The question makes no sense on this node; the message says why."""


class Several(Exception):  # noqa: N818
    """Several findings of one check, in order."""

    def __init__(self, outcomes: tuple[BaseException, ...]) -> None:
        super().__init__("\n".join(str(outcome) for outcome in outcomes))
        self.outcomes = outcomes


def fail(message: str, action: str = "", cause: str = "") -> NoReturn:
    """End the check, or the part of it, as `assert` does; `action` stands for that of the check's remedy."""
    raise Failed(message, action, cause)


def concern(message: str) -> NoReturn:
    """End the check, or the part of it: this is worth a look. The message reads `observed; expected …`."""
    raise Concern(message)


def incomplete(message: str, cause: str = "") -> NoReturn:
    """End the check, or the part of it: the evidence for a verdict is missing; say what would supply it."""
    raise Incomplete(message, cause)


def not_applicable(message: str) -> NoReturn:
    """End the check, or the part of it: say why the question makes no sense on this node."""
    raise NotApplicable(message)


def fail_if(seen: object, message: str, action: str = "", cause: str = "") -> None:
    """Where `seen` holds, say that this failed, as `fail` does, and go on."""
    _evaluated(Failed(message, action, cause) if seen else None)


def concern_if(seen: object, message: str, cause: str = "") -> None:
    """Where `seen` holds, say that this is worth a look, as `concern` does, and go on."""
    _evaluated(Concern(message, cause) if seen else None)


class Part:
    """`with part:` keeps how this part of a check ends as a finding, and the check continues.

    A fact that cannot be read leaves that part incomplete, and nothing else.
    """

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, _kind: object, outcome: BaseException | None, _trace: TracebackType | None) -> bool:
        """Keep how it ended. Where nobody records, and for what is no outcome of a check, it is raised."""
        recording = _recording.get()
        if recording is None or not (outcome is None or isinstance(outcome, Exception)):
            return False
        recording.add(outcome)
        return True


part = Part()


class Recording:
    """`with Recording() as said:` collects the findings of a check that runs in it."""

    def __init__(self) -> None:
        self.outcomes: list[BaseException] = []
        self.is_evaluated = False  # whether any part of the check applied

    def __enter__(self) -> Recording:
        self._token = _recording.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _recording.reset(self._token)

    def add(self, outcome: BaseException | None) -> None:
        """Keep what a part of the check came to; None where it found nothing."""
        self.is_evaluated = self.is_evaluated or not isinstance(outcome, NotApplicable)
        if outcome is not None:
            self.outcomes.append(outcome)

    def take(self, last: BaseException | None) -> list[BaseException]:
        """Everything that was said until the check ended so, and begin anew; empty where it passed."""
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
