"""Whether a finding is still said: the same verdict, with the values and most of the words that it had."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.core.result import Finding, split_message
from clusterproof.plugins.core.verdict import Verdict

Words = frozenset[str]

_WORD = re.compile(r"[\w./:-]*\w")
_MOMENT = re.compile(r"(?:at )?(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC|\d+ s after boot)")  # by either clock
SHARE = 0.5  # of its words without a digit, at least, that a finding keeps: others are what it was seen beside


def is_said(finding: Finding, after: Iterable[Finding], excused: Words = frozenset(), or_worse: bool = False) -> bool:
    """Whether one of the findings says the same; words that are excused may be gone.

    With `or_worse` a concern may have become a failure.
    """
    verdicts = (
        (finding.verdict, Verdict.FAIL) if or_worse and finding.verdict is Verdict.CONCERN else (finding.verdict,)
    )
    return any(one.verdict in verdicts and (one == finding or _says(one, finding, excused)) for one in after)


def _says(other: Finding, finding: Finding, excused: Words) -> bool:
    seen, expected = split_message(finding.message)
    kept = words(in_line(other))
    due = words(f"{devices(finding)} {seen}") - values(words(expected)) - excused
    plain = due - values(due)
    return values(due) <= kept and len(plain & kept) >= SHARE * len(plain)


def values(data: Words) -> Words:
    """The numbers, addresses and names of devices among words: each that has a digit."""
    return frozenset(word for word in data if any(letter.isdigit() for letter in word))


def words(text: str) -> Words:
    """The words of a text, without the moments in it."""
    return frozenset(_WORD.findall(_MOMENT.sub("", text).lower()))


def words_of(leaves: Iterable[object]) -> Words:
    """The words of values in the evidence."""
    return frozenset(word for leaf in leaves if leaf is not None for word in words(str(leaf)))


def devices(finding: Finding) -> str:
    """The devices that a finding is of, as it begins."""
    return ", ".join(finding.devices)


def in_line(finding: Finding) -> str:
    """`fail GPU 3: 14 in DRAM; expected 0`."""
    return f"{finding.verdict.value} {finding.line}"
