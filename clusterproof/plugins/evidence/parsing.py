"""Formats of output that a person may have collected, and strict parsing of untrusted text."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.core.errors import ClusterproofError


class CaptureError(ClusterproofError, ValueError):
    """A text of a known form that cannot be read; the message says why."""


def no_line(_line: str) -> bool:
    """No line marks the beginning of an output of this form."""
    return False


def nothing(_text: str) -> Sequence[str]:
    """Nothing of an output of this form is passed over."""
    return ()


def count_one(_text: str) -> int:
    """An output counts as one."""
    return 1


@dataclass(frozen=True, slots=True)
class Form:
    """A format of output, recognized by its text alone, whatever the file's name.

    Texts come decoded, with \\n at the end of lines, and without ANSI escapes, prompts and typed command lines. A file
    with the outputs of several commands is cut at prompts and at lines that `begins` recognises; every form that
    recognises a piece reads it. `read` gives collector name → value in the form of docs/evidence.md, as far as the text
    has it: a missing key is left out, a value that the text calls unreadable is an error object. It raises
    CaptureError; whatever else it raises is a text that is not understood.
    """

    name: str  # as a person calls it: "nvidia-smi -q"
    recognises: Callable[[str], object]  # true cheaply: looks at how the text begins, and does not understand it
    read: Callable[[str], Mapping[str, object]]
    rank: int = 50  # where two files have the same value, that of the higher rank counts
    begins: Callable[[str], bool] = no_line  # whether this line can only be the first of such an output
    unclear: Callable[[str], Sequence[str]] = nothing  # lines on what `read` passes over, as it is not understood
    size: Callable[[str], int] = count_one  # what an output counts towards `most`
    most: int = 0  # of such outputs in one text the last are read, which together are no larger; 0 for all


CHOSEN = "GPUs were chosen"  # stands behind the output of a command with -i: its first GPU need not be GPU 0
TYPED = "typed: "  # stands before the command above an output that does not say what it is of, or in which unit
PLACE = "place"  # the key of a GPU's place among those in an output, `2/8`, until it is known how many there are

MAX_TEXT = 300  # characters of one value

_NUMBERS = re.compile(r"\d{1,4}")
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s?([KMGTPE]?)i?B?", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)
_NUMBER = re.compile(r"[-+]?\d{1,18}(?:\.\d{0,18})?(?:[eE][-+]?\d{1,2})?", re.ASCII)


def short(data: object) -> str:
    """Text or a number as text, cut; anything else is empty."""
    return str(data)[:MAX_TEXT] if isinstance(data, (str, int, float)) and not isinstance(data, bool) else ""


def document_in(text: str) -> dict[str, Any]:
    """The first JSON object of a text; tools print warnings before and behind it. Raises CaptureError."""
    return object_at(text, max(text.find("{"), 0))[0]


def object_at(text: str, begin: int) -> tuple[dict[str, Any], int]:
    """The JSON object that begins at this place of a text, and where it ends. Raises CaptureError."""
    try:
        document, end = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError) as problem:
        raise CaptureError(f"its JSON cannot be read, it may be cut: {problem}") from None
    if not isinstance(document, dict):
        raise CaptureError("its JSON is no object")
    return document, end


_BRACKETS = {"{": "}", "[": "]"}
_OF_JSON = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[][{}]', re.DOTALL)  # a string, the last perhaps cut, or a bracket


def whole_in(text: str) -> dict[str, Any]:
    """The objects and lists of cut JSON that are whole, within those that are not. Raises CaptureError."""
    begin = max(text.find("{"), 0)
    closing: list[str] = []
    end, still_open = begin, 0
    for token in _OF_JSON.finditer(text, begin):
        word = token[0]
        if word in _BRACKETS:
            closing.append(_BRACKETS[word])
        elif closing and word == closing[-1]:
            closing.pop()
            end, still_open = token.end(), len(closing)
    return object_at(text[begin:end] + "".join(reversed(closing[:still_open])), 0)[0]


def typed_above(text: str) -> str:
    """The command whose output this is, of those whose output does not say what it is of; empty where unknown."""
    first = text.partition("\n")[0]
    return first.removeprefix(TYPED)[:MAX_TEXT] if first.startswith(TYPED) else ""


def below_typed(text: str) -> str:
    """An output without the command above it."""
    return text.partition("\n")[2] if text.startswith(TYPED) else text


def objects(data: object) -> list[dict[str, Any]]:
    """The objects in a list; none where it is no list."""
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def is_error(value: object) -> bool:
    """Whether this stands for a value that could not be read."""
    return isinstance(value, dict) and "error" in value


def integer(word: str) -> int | None:
    """A whole number, None where the word is none."""
    return int(word) if _WHOLE.fullmatch(word) else None


def number(word: str) -> float | None:
    """A number, None where the word is none."""
    return float(word) if _NUMBER.fullmatch(word) else None


def bytes_of(word: str) -> int | None:
    """The bytes of a size as df, free and lfs shorten it (`1.1T`, powers of 1024); None where the word is none."""
    size = _SIZE.fullmatch(word)
    return int(float(size[1]) * 1024 ** _POWERS[size[2].upper()]) if size else None


def gpus_in(data: object) -> str:
    """The numbers in `GPUs: 0, 3`, `0,3` or 0, as `0, 3`; empty where it has none."""
    return ", ".join(_NUMBERS.findall(short(data)))


def sections(begin: re.Pattern[str], text: str, most: int = 100_000) -> list[tuple[re.Match[str], str]]:
    """Each place where a section begins, with the text from there up to the next; at most so many."""
    begins = list(itertools.islice(begin.finditer(text), most))
    ends = [match.start() for match in begins[1:]] + [len(text)]
    return [(match, text[match.end() : end]) for match, end in zip(begins, ends[: len(begins)], strict=True)]


LINES = 5  # from the end, in which it is looked for
_EXIT = re.compile(
    r"\W{0,8}(?:exit(?:ed)?|rc|return|status)(?:[ _-]?(?:code|status|value|with))?\s{0,4}[:=]?\s{0,4}"
    r"(-?\d{1,3})\W{0,8}",
    re.IGNORECASE | re.ASCII,
)


def exit_status(text: str) -> int | None:
    """The number in a line like `exit code: 205` or `rc=0` at the end, negative for a signal; None if there is none."""
    for line in reversed(text.rstrip()[-2000:].split("\n")[-LINES:]):
        match = _EXIT.fullmatch(line[:200])
        if match:
            return int(match[1])
    return None
