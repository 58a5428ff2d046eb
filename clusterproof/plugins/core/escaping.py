"""Escapes untrusted text where it would be interpreted: commands in a CI job's log, links in Markdown.

GitHub Actions: `::word` at a line's beginning, whatever blanks are before it, and `##[word]` anywhere. Azure Pipelines:
`##vso[word]` anywhere. A backslash within breaks them: `:\\:word`, `##\\[word]`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

_KEPT = 64  # characters at a line's end that may form a command with the next write
_BLANK = r"(?:[^\S\r\n]|\x1b\[[0-9;]{0,20}[A-Za-z])"
_ANYWHERE = re.compile(r"##\w{0,20}(?=\[)")
_COMMAND = re.compile(rf"(?:\A|[\r\n]){_BLANK}*:(?=:)|{_ANYWHERE.pattern}")


def are_commands_read() -> bool:
    """Whether a CI system interprets commands in this process's output."""
    return os.environ.get("GITHUB_ACTIONS") == "true" or bool(os.environ.get("TF_BUILD"))


def without_commands(line: str, text: str, command: re.Pattern[str] = _COMMAND) -> str:
    """The text, escaped so that it forms no command when written after what the current line already has."""
    both = line + text
    cuts = [match.end() for match in command.finditer(both) if match.end() >= len(line)]
    starts = [len(line), *cuts]
    return "\\".join(both[begin:end] for begin, end in zip(starts, [*cuts, len(both)], strict=True))


class JobLog:
    """A text stream that only writes intended commands."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._line = ""  # the end of the current line
        self._is_meant = False

    def write(self, text: str) -> int:
        """Write, with commands escaped."""
        text = without_commands(self._line, text, _ANYWHERE if self._is_meant else _COMMAND)
        self._line = re.split(r"[\r\n]", self._line + text)[-1][-_KEPT:]
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    @contextmanager
    def commands(self) -> Iterator[None]:
        """While active, a line may start with an intended command."""
        self._is_meant = True
        try:
            yield
        finally:
            self._is_meant = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def as_job_log(stream: Any) -> Any:
    """The stream, wrapped to escape commands if a CI system reads them."""
    return stream if isinstance(stream, JobLog) or not are_commands_read() else JobLog(stream)


# Characters with a meaning in Markdown or on GitHub, anywhere or at the beginning of a line.
_MEANING = re.compile(
    r"([\\`*\[\]#|<>~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=[wW]{3})\.|^[-+=]|(?<=^\d)[.)])"
)
_REFERENCE = re.compile(r"[@#!](?=\w)")  # a user, an issue, a merge request: not prevented by a backslash


def plain(text: str) -> str:
    """Text that Markdown shows literally, on one line, and that creates no link and notifies nobody in a ticket."""
    shown = _MEANING.sub(r"\\\1", " ".join(text.split())).replace("&", "&amp;")
    return _REFERENCE.sub(r"\g<0><!-- -->", shown)
