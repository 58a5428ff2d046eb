"""One form of output that a person may have collected: how it is recognised, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clusterproof.plugins.core.errors import ClusterproofError


class CaptureError(ClusterproofError, ValueError):
    """A text of a known form that cannot be understood; the message says what is wrong with it."""


def no_line(_line: str) -> bool:
    """No line marks the beginning of an output of this form."""
    return False


@dataclass(frozen=True, slots=True)
class Form:
    """One form of output, recognised by its text alone: a file's name does not count.

    Texts come decoded, with \\n at the end of lines, and without ANSI escapes, prompts and typed command lines. A file
    with the outputs of several commands is cut at prompts and at lines that `begins` recognises; every form that
    recognises a piece reads it. `read` gives collector name → value in the form of docs/evidence.md, as far as the text
    has it: a missing key is left out, a value that the text calls unreadable is an error object. It raises
    CaptureError, and nothing else.
    """

    name: str  # as a person calls it: "nvidia-smi -q"
    recognises: Callable[[str], bool]  # cheap: looks at the text, and does not understand it
    read: Callable[[str], Mapping[str, object]]
    rank: int = 50  # where two files have the same value, that of the higher rank counts
    begins: Callable[[str], bool] = no_line  # whether this line can only be the first of such an output
