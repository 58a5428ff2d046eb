"""Values out of text that nobody has checked."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

from clusterproof.plugins.evidence.form import CaptureError

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
    try:
        document, _ = json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))
    except (ValueError, RecursionError) as problem:
        raise CaptureError(f"its JSON cannot be read, it may be cut: {problem}") from None
    if not isinstance(document, dict):
        raise CaptureError("its JSON is no object")
    return document


def objects(data: object) -> list[dict[str, Any]]:
    """The objects in a list; none where it is no list."""
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def whole(word: str) -> int | None:
    """A whole number, None where the word is none."""
    return int(word) if _WHOLE.fullmatch(word) else None


def number(word: str) -> float | None:
    """A number, None where the word is none."""
    return float(word) if _NUMBER.fullmatch(word) else None


def bytes_of(word: str) -> int | None:
    """The bytes of a size as df, free and lfs shorten it (`1.1T`, powers of 1024); None where the word is none."""
    found = _SIZE.fullmatch(word)
    return int(float(found[1]) * 1024 ** _POWERS[found[2].upper()]) if found else None


def gpus_in(data: object) -> str:
    """The numbers in `GPUs: 0, 3`, `0,3` or 0, as `0, 3`; empty where it has none."""
    return ", ".join(_NUMBERS.findall(short(data)))


def sections(begin: re.Pattern[str], text: str, most: int = 100_000) -> list[tuple[re.Match[str], str]]:
    """Each place where a section begins, with the text from there up to the next; at most so many."""
    begins = list(itertools.islice(begin.finditer(text), most))
    ends = [found.start() for found in begins[1:]] + [len(text)]
    return [(found, text[found.end() : end]) for found, end in zip(begins, ends[: len(begins)], strict=True)]
