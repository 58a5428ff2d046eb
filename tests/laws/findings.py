"""Whether a finding is still reported with its values and most of its words; and what varies between probes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Any

from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding, split_message
from clusterproof.plugins.core.verdict import Verdict
from tests.laws.pieces import nearest

Words = frozenset[str]

_WORD = re.compile(r"[\w./:-]*\w")
_MOMENT = re.compile(r"(?:at )?(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC|\d+ s after boot)")  # by either clock
SHARE = 0.5  # minimum share of a finding's digitless words to be kept: the others are its context


def is_reported(
    finding: Finding, after: Iterable[Finding], excused: Words = frozenset(), or_worse: bool = False
) -> bool:
    """Whether one of the findings says the same; excused words may be missing.

    With `or_worse`, a concern may have become a failure.
    """
    verdicts = (
        (finding.verdict, Verdict.FAIL) if or_worse and finding.verdict is Verdict.CONCERN else (finding.verdict,)
    )
    return any(other.verdict in verdicts and (other == finding or _says(other, finding, excused)) for other in after)


def _says(other: Finding, finding: Finding, excused: Words) -> bool:
    seen, expected = split_message(finding.message)
    kept = words(in_line(other))
    due = words(f"{devices(finding)} {seen}") - values(words(expected)) - excused
    plain = due - values(due)
    return values(due) <= kept and len(plain & kept) >= SHARE * len(plain)


def values(every_word: Words) -> Words:
    """The numbers, addresses and device names in a text: every word with a digit."""
    return frozenset(word for word in every_word if any(letter.isdigit() for letter in word))


@functools.lru_cache(1 << 13)  # removals take away the same values again and again
def words(text: str) -> Words:
    """The words of a text, without times."""
    return frozenset(_WORD.findall(_MOMENT.sub("", text).lower()))


def words_of(leaves: Iterable[object]) -> Words:
    """The words of values in the evidence."""
    return frozenset(word for leaf in leaves if leaf is not None for word in words(str(leaf)))


def devices(finding: Finding) -> str:
    """The devices that a finding begins with."""
    return ", ".join(finding.devices)


def in_line(finding: Finding) -> str:
    """`fail GPU 3: 14 in DRAM; expected 0`."""
    return f"{finding.verdict.value} {finding.line}"


BY_CHANCE = {  # by key, the largest share of the healthy node's value, or number, of random variation
    "init_s": (0.0, 1.0),
    "read_s": (0.0, 0.4),
    "now": (0.0, 86_400.0),
    "free_kib": (0.2, 0.0),
    "available_kib": (0.2, 0.0),
    "inodes_free": (0.2, 0.0),
}
COUNTED_S = {"efa_counters", "ena_counters"}  # their `seconds` passed between two samples
TALLIES = ("read", "cursor")  # of the kernel log: its number of records
BUSY = "times"  # the processors' work, which is the same at another pace


def without_chance(evidence: NodeEvidence, healthy: NodeEvidence) -> NodeEvidence:
    """The evidence of a faulty node, with the healthy node's values where they vary at random."""
    collectors = {
        name: _collected(name, collected, healthy.collectors[name]) if name in healthy.collectors else collected
        for name, collected in evidence.collectors.items()
    }
    return replace(evidence, collectors=collectors)


def _collected(name: str, collected: Collected, healthy: Collected) -> Collected:
    value = _settled(collected.value, healthy.value)
    if name in COUNTED_S and isinstance(value, dict) and isinstance(healthy.value, dict):
        value = {**value, "seconds": healthy.value["seconds"]}
    return replace(collected, value=value)


def _settled(value: Any, healthy: Any, key: str = "") -> Any:
    if value == healthy or (key in TALLIES and healthy is not None):
        return healthy
    if isinstance(value, dict) and isinstance(healthy, dict):
        return {name: _settled(entry, healthy.get(name), name) for name, entry in value.items()}
    if isinstance(value, list) and isinstance(healthy, list):
        if key == BUSY:
            return healthy if _what_was_done(value) == _what_was_done(healthy) else value
        return [_settled(entry, nearest(entry, place, healthy)) for place, entry in enumerate(value)]
    return healthy if _is_near(key, value, healthy) else value


def _what_was_done(times: list[list[int]]) -> list[list[bool]]:
    return [[bool(time) for time in looked] for looked in times]


def _is_near(key: str, value: Any, healthy: Any) -> bool:
    if key not in BY_CHANCE or not isinstance(value, int | float) or not isinstance(healthy, int | float):
        return False
    share, number = BY_CHANCE[key]
    return abs(value - healthy) <= max(share * abs(healthy), number)
