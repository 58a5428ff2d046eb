"""Iterates over the events of a Chrome trace: only one piece of a file of gigabytes is in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any

from clusterproof.plugins.training_run import RunError
from clusterproof.plugins.training_run.files import RunFile, Unpacked

MAX_EVENT = 1 << 20  # characters
MAX_HEAD = 8 << 20  # characters before the events: device properties, process groups
MAX_TAIL = 1 << 20  # characters after them
BEGIN = re.compile(r'"traceEvents"\s*:\s*\[|^\s*\[')  # a key of an object, or nothing but the events
_BETWEEN = re.compile(r"[\s,]*")
_CUT = 16  # characters before the end of a piece, in which an error may be that of the cut
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4}|$|u[0-9a-fA-F]{,3}$)?')
_NO_VALUE = re.compile(r"([:,\[]\s*)(?:N/A|-?nan(?:\(\w*\))?|-?inf(?:inity)?)(?=\s*[,}\]])")

_DECODER = json.JSONDecoder(strict=False)  # of names with control characters too (pytorch/pytorch#130622)
_TRIES = 50  # objects, the last of which that is an event is looked for


class Events:
    """The events of a trace, or the items of another list that `begin` finds.

    `head` is the text before them, and `tail`, once they are read, the text after.
    """

    def __init__(
        self, path: RunFile, begin: re.Pattern[str] = BEGIN, what: str = "a trace of PyTorch's profiler"
    ) -> None:
        self.path = path
        self.begin = begin
        self.what = what
        self.head = ""
        self.tail = ""
        self.number = 0
        self.is_whole = False  # whether their end was seen

    @property
    def where(self) -> str:
        """`trace.json, event 12`."""
        return f"{self.path}, event {self.number}"

    def __iter__(self) -> Iterator[Any]:
        """Each event. A truncated trace loses at most its last event. Raises RunError."""
        decode = _DECODER.raw_decode
        between = _BETWEEN.match
        text = ""
        pieces = self._pieces()
        for piece in pieces:
            text += piece
            whole, at = _together(text)
            for event in whole:
                self.number += 1
                yield event
            while True:
                at = between(text, at).end()  # type: ignore[union-attr] # it matches nothing too
                if text.startswith("]", at):
                    self.is_whole = True
                    self._keep_tail(text[at + 1 :], pieces)
                    return
                try:
                    event, end = decode(text, at)
                except json.JSONDecodeError as wrong:
                    mended = _mended(text, at, wrong)
                    if mended == text:
                        break  # it continues in the next piece
                    text = mended
                    continue
                except (ValueError, RecursionError) as wrong:  # a number of thousands of digits
                    why = "a number is too long" if isinstance(wrong, ValueError) else "it is nested too deeply"
                    raise RunError(f"{self.where}: {why}; expected {self.what}") from None
                self.number += 1
                yield event
                at = end
            text = text[at:]
            if len(text) > MAX_EVENT:
                raise RunError(f"{self.where}: {text[:40]!r} is not JSON; expected {self.what}")

    def _keep_tail(self, text: str, pieces: Iterator[str]) -> None:
        for piece in pieces:
            if len(text) > MAX_TAIL:
                break
            text += piece
        self.tail = text[:MAX_TAIL]

    def _pieces(self) -> Iterator[str]:
        """The text from the beginning of the events, in pieces; names may contain invalid UTF-8."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # as in pytorch/pytorch#136180
        has_begun = False
        for piece in Unpacked(self.path):
            text = decoder.decode(piece)
            if has_begun:
                yield text
                continue
            self.head += text
            begin = self.begin.search(self.head)
            if begin:
                has_begun = True
                text, self.head = self.head[begin.end() :], self.head[: begin.start()]
                yield text
            elif len(self.head) > MAX_HEAD:
                break
        if not has_begun:
            key = self.begin.pattern.split('"')[1]
            raise RunError(f"{self.path}: no {key}; expected {self.what}")


def _together(text: str) -> tuple[list[Any], int]:
    """The complete events, decoded at once, which takes half the time, and where they end.

    None if that fails: then errors, or the end of the trace, are found one by one.
    """
    begin, end = _BETWEEN.match(text).end(), _last_begin(text)  # type: ignore[union-attr] # it matches nothing too
    if begin >= end:
        return [], 0
    try:
        return _DECODER.decode(f"[{text[begin:end].rstrip().removesuffix(',')}]"), end
    except (ValueError, RecursionError):
        return [], 0


def _last_begin(text: str) -> int:
    """Where the last event begins, as far as can be seen: an object after another one; 0 if none is seen."""
    at = len(text)
    for _ in range(_TRIES):
        at = text.rfind("{", 0, at)
        if at <= 0:
            return 0
        before = text[max(0, at - _CUT) : at].rstrip()
        if before.endswith(",") and before[:-1].rstrip().endswith("}"):
            return at
    return 0


def _mended(text: str, at: int, wrong: json.JSONDecodeError) -> str:
    r"""The text with profilers' invalid JSON repaired: a single `\`, and `N/A` and `nan` for numbers.

    pytorch/kineto#336 and #131, pytorch/pytorch#98432. Unchanged if that is not the problem.
    """
    is_known = wrong.msg.startswith(("Invalid \\", "Expecting value"))
    if not is_known or len(text) - wrong.pos <= _CUT:
        return text
    whole, rest = text[at:-_CUT], text[-_CUT:]
    whole = _ESCAPE.sub(lambda escape: escape[0] if escape[1] is not None else r"\\", whole)
    return text[:at] + _NO_VALUE.sub(r"\1null", whole) + rest
