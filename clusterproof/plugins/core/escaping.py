"""Escapes untrusted text where it could be executed: workflow commands in CI logs, links in Markdown.

GitHub Actions: `::word` at a line's beginning, whatever blanks are before it, and `##[word]` anywhere. Azure Pipelines:
`##vso[word]` anywhere. A backslash within breaks them: `:\\:word`, `##\\[word]`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_KEPT = 64  # characters of a line's end that may be part of one with what is written next
_BLANK = r"(?:[^\S\r\n]|\x1b\[[0-9;]{0,20}[A-Za-z])"
_ANYWHERE = re.compile(r"##\w{0,20}(?=\[)")
_COMMAND = re.compile(rf"(?:\A|[\r\n]){_BLANK}*:(?=:)|{_ANYWHERE.pattern}")


def are_commands_read() -> bool:
    """Whether the CI system that runs this looks for commands in what it prints."""
    return os.environ.get("GITHUB_ACTIONS") == "true" or bool(os.environ.get("TF_BUILD"))


def without_commands(line: str, text: str, command: re.Pattern[str] = _COMMAND) -> str:
    """What to write of a text behind what stands of the line by now, so that nothing in it is a command."""
    both = line + text
    places = [match.end() for match in command.finditer(both) if match.end() >= len(line)]
    ends = [len(line), *places]
    return "\\".join(both[begin:end] for begin, end in zip(ends, [*places, len(both)], strict=True))


class JobLog:
    """A text stream for a CI job's log: only intended workflow commands reach it unescaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""  # its end
        self._is_meant = False

    def write(self, text: str) -> int:
        """Write, without commands."""
        text = without_commands(self._line, text, _ANYWHERE if self._is_meant else _COMMAND)
        self._line = re.split(r"[\r\n]", self._line + text)[-1][-_KEPT:]
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    @contextmanager
    def commands(self) -> Iterator[None]:
        """A line that is written meanwhile may begin with one."""
        self._is_meant = True
        try:
            yield
        finally:
            self._is_meant = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def as_job_log(stream: Any) -> Any:
    """The stream; one without commands where they are read."""
    return stream if isinstance(stream, JobLog) or not are_commands_read() else JobLog(stream)


# What Markdown, or GitHub, reads as more than itself: anywhere, or at the beginning of a line.
_MEANING = re.compile(
    r"([\\`*\[\]#|<>~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=[wW]{3})\.|^[-+=]|(?<=^\d)[.)])"
)
_REFERENCE = re.compile(r"[@#!](?=\w)")  # a user, an issue, a merge request: whatever is escaped


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line, and in which a ticket finds no link and nobody to notify."""
    shown = _MEANING.sub(r"\\\1", " ".join(text.split())).replace("&", "&amp;")
    return _REFERENCE.sub(r"\g<0><!-- -->", shown)
