"""YAML as kubectl prints it: mappings and lists by indentation; no anchors, no tags, no flow style."""

from __future__ import annotations

import json
import re

from clusterproof.plugins.evidence.parsing import CaptureError

MAX_LINES, LONGEST_LINE, MAX_DEPTH = 400_000, 20_000, 40

_KEY = re.compile(r"(?:([\w./~+-][\w./~+ -]{0,316})|\"((?:[^\"\\]|\\.){0,1000})\"|'([^']{0,1000})'):(?: (.*))?\Z")
_BLOCK = re.compile(r"[|>][+-]?\d?\Z")
_WORDS: dict[str, object] = {"true": True, "false": False, "null": None, "~": None, "{}": {}, "[]": [], "": None}


class Lines:
    """The lines of a document that say something, with their indentation, and which is next."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n", MAX_LINES)[:MAX_LINES]
        self.rows = [(len(line) - len(line.lstrip(" ")), line.strip()[:LONGEST_LINE]) for line in lines if line.strip()]
        self.place = 0

    @property
    def indent(self) -> int:
        """The indentation of the next; -1 where there is none."""
        return self.rows[self.place][0] if self.place < len(self.rows) else -1

    @property
    def line(self) -> str:
        """The next, without it; empty where there is none."""
        return self.rows[self.place][1] if self.place < len(self.rows) else ""

    def deeper(self, indent: int) -> str:
        """The lines that are indented further, as one text: the rest of a scalar."""
        start = self.place
        while self.indent > indent:
            self.place += 1
        return " ".join(line for _, line in self.rows[start : self.place])


def document(text: str) -> object:
    """The first document of a text. Raises CaptureError."""
    lines = Lines(text)
    if lines.line == "---":
        lines.place += 1
    data = _value(lines, lines.indent, MAX_DEPTH)
    if lines.line not in ("", "---"):
        raise CaptureError(f"its YAML is not understood at {lines.line[:60]!r}, it may be cut")
    return data


def _value(lines: Lines, indent: int, deepest: int) -> object:
    if not deepest:
        raise CaptureError("its YAML is too deep")
    if lines.line == "-" or lines.line.startswith("- "):
        return _list(lines, indent, deepest)
    return _mapping(lines, indent, deepest)


def _list(lines: Lines, indent: int, deepest: int) -> list[object]:
    entries: list[object] = []
    while lines.indent == indent and (lines.line == "-" or lines.line.startswith("- ")):
        rest = lines.line[1:].lstrip(" ")
        if _KEY.fullmatch(rest):  # the first key of a mapping, whose other keys stand below it
            inside = indent + len(lines.line) - len(rest)
            lines.rows[lines.place] = (inside, rest)
            entries.append(_mapping(lines, inside, deepest - 1))
        else:
            lines.place += 1
            entries.append(_scalar(rest, lines.deeper(indent)))
    return entries


def _mapping(lines: Lines, indent: int, deepest: int) -> dict[str, object]:
    found: dict[str, object] = {}
    while lines.indent == indent and (key := _KEY.fullmatch(lines.line)):
        lines.place += 1
        name, rest = key[1] or key[2] or key[3] or "", (key[4] or "").strip()
        is_list = lines.line.startswith("-") and lines.indent == indent
        if rest:
            found[name] = _scalar(rest, lines.deeper(indent))
        elif lines.indent > indent or is_list:
            found[name] = _value(lines, lines.indent, deepest - 1)
        else:
            found[name] = None
    return found


def _scalar(first: str, more: str) -> object:
    """One value; a number is left as text, as quantities are."""
    if _BLOCK.fullmatch(first):
        return more
    word = f"{first} {more}" if more else first
    if word[0] == "'" == word[-1] and len(word) > 1:
        return word[1:-1].replace("''", "'")
    if word[0] == '"':
        try:
            return str(json.loads(word))
        except ValueError:
            return word
    return _WORDS.get(word, word)
