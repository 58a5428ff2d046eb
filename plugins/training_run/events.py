"""The events of a trace in Chrome's format, one by one: of a file of gigabytes one piece at a time is in memory."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clusterproof.plugins.training_run.records import RunError
from clusterproof.plugins.training_run.unpacked import Unpacked

MAX_EVENT = 1 << 20  # characters
MAX_HEAD = 8 << 20  # characters before the events: device properties, process groups
_BEGIN = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")


class Events:
    """The events of a trace; `head` is what stands before them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = ""
        self.number = 0
        self.is_whole = False  # whether their end was seen

    @property
    def where(self) -> str:
        """`trace.json, event 12`."""
        return f"{self.path}, event {self.number}"

    def __iter__(self) -> Iterator[Any]:
        """Each event. What a trace that was cut has lost is its last event at most. Raises RunError."""
        decode = json.JSONDecoder().raw_decode
        text = ""
        for piece in self._pieces():
            text += piece
            at = 0
            while True:
                at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr] # it matches nothing too
                if text.startswith("]", at):
                    self.is_whole = True
                    return
                try:
                    event, end = decode(text, at)
                except ValueError:
                    break  # it goes on in the next piece
                except RecursionError:
                    raise RunError(f"{self.where}: it is nested too deeply; expected an event of a profiler") from None
                self.number += 1
                yield event
                at = end
            text = text[at:]
            if len(text) > MAX_EVENT:
                raise RunError(f"{self.where}: {text[:40]!r} is not JSON; expected events of a profiler")

    def _pieces(self) -> Iterator[str]:
        """The text behind the beginning of the events, piece by piece."""
        decoder = codecs.getincrementaldecoder("utf-8")("strict")
        has_begun = False
        try:
            for piece in Unpacked(self.path):
                text = decoder.decode(piece)
                if has_begun:
                    yield text
                    continue
                self.head += text
                begin = _BEGIN.search(self.head)
                if begin:
                    has_begun = True
                    text, self.head = self.head[begin.end() :], self.head[: begin.start()]
                    yield text
                elif len(self.head) > MAX_HEAD:
                    break
        except UnicodeDecodeError as wrong:
            raise RunError(f"{self.where}: {wrong.reason}; expected UTF-8") from None
        if not has_begun:
            raise RunError(f"{self.path}: no traceEvents; expected a trace of PyTorch's profiler")
