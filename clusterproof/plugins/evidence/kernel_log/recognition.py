"""Recognises a line of the kernel log: the first form of the catalogue that it fits."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TypeAlias

from clusterproof.plugins.catalog.log_forms import LogForm, log_forms, patterns
from clusterproof.plugins.evidence.kernel_log.line import IGNORING_CASE, MESSAGES, begins_with_a_name
from clusterproof.plugins.evidence.pattern import Pattern

NAMED = "a process's name"
OF_PROCESS = ("(?P<process>", "(?:traps: )?(?P<process>")  # so begin forms of records that begin with a process's name
BEGINNING = 4  # letters by which forms are found that begin with plain words
_BEGINS = re.compile(rf"([A-Za-z][\w :/-]{{{BEGINNING - 1}}})(?![?*+{{])")

Try: TypeAlias = tuple[str, str, Pattern]  # words that a line must hold, in small letters; a form's name, and itself

_NOT_PLAIN = (  # what of a pattern stands for no text of its own, from the inside out
    re.compile(r"\\."),
    re.compile(r"\[\^?\]?[^\]]*\]"),
    re.compile(r"\([^()]*\)"),
    re.compile(r".(?:[?*]|\{[^{}]*\})|[.+^$]", re.DOTALL),
)
_END = "\n"  # of plain words


@lru_cache(MESSAGES)
def fitting(message: str) -> tuple[LogForm, re.Match[str]] | None:
    """The first form that the kernel's message fits, and how; a process's name is not the kernel's own text."""
    small = message.lower()
    for words, name, pattern in _tries(NAMED if begins_with_a_name(message) else small[:BEGINNING]):
        if words in small and (found := pattern.match(message)):
            return log_forms()[name], found
    return None


@lru_cache(MESSAGES)
def _tries(beginning: str) -> list[Try]:
    """The forms, in their order, that a line with this beginning may fit."""
    if beginning == NAMED:
        return [_try(name) for name, text in patterns().items() if text.startswith(OF_PROCESS)]
    return [_try(name) for name, letters in _beginnings().items() if letters in ("", beginning)]


@cache
def _beginnings() -> dict[str, str]:
    """The first letters of what fits each form, in small letters; empty where they are not plain."""
    begins = {name: _BEGINS.match(text) for name, text in patterns().items()}
    return {name: found[1].lower() if found else "" for name, found in begins.items()}


@cache
def _try(name: str) -> Try:
    text = patterns()[name]
    return max(_plain(text).split(_END), key=len), name, Pattern(text, IGNORING_CASE)


def _plain(pattern: str) -> str:
    """The plain words of a pattern, in small letters, with an end wherever they do not go on."""
    text = pattern.lower()
    for what in _NOT_PLAIN:
        while (shorter := what.sub(_END, text)) != text:
            text = shorter
    return text
