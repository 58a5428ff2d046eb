"""A program that measured: what it printed, and how it ended."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, optional, text, whole

MAX_PRINTED = 300_000  # characters; the node sends at most 256 KiB
MAX_WORDS = 200


def printed(data: object) -> str:
    """All that a program printed."""
    if not isinstance(data, str):
        raise TypeError
    return data[:MAX_PRINTED]


@record
class Ran(Reported):
    """One run; `exit` is None where it was ended."""

    command = Field(text)
    exit = Field(optional(whole))
    output = Field(printed)

    @property
    def as_saved(self) -> str:
        """Its output as a person saves it: with the command before it and the exit status behind."""
        return f"{self.command}\n{self.output}\nexit: {self.exit}\n"

    @property
    def last_words(self) -> str:
        """The end of what it printed, on one line."""
        return " ".join(self.output.split())[-MAX_WORDS:]

    @property
    def ended(self) -> str:
        """How it ended, in words for a finding: `fio … ended with 1: …`."""
        how = "was ended" if self.exit is None else f"ended with {self.exit}"
        return f"{self.command} {how}: {self.last_words or 'it printed nothing'}"
