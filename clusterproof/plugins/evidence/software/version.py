"""Versions in programs' notations, and the rules of a manifest for them."""

from __future__ import annotations

import re
from itertools import zip_longest

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.core.record import record

OPERATORS = ("==", "!=", ">=", "<=", ">", "<")
MAX_LENGTH = 200
_WRITTEN = Pattern(r"(?:\d{1,3}:)?v?(?P<numbers>\d{1,9}(?:\.\d{1,9}){0,7})(?!\d)(?P<rest>.*)", re.DOTALL | re.ASCII)
_REVISION = Pattern(r"-(\d{1,9}(?:\.\d{1,9}){0,3})(?!\d)", re.ASCII)


@record
class Version:
    """A version: its numbers, the numbers after its first dash (Debian's revision, Ubuntu's kernel build), the rest."""

    numbers: tuple[int, ...]
    revision: tuple[int, ...] = ()
    rest: str = ""  # the text after the numbers, with the revision


@record
class Rule:
    """One condition, such as `>= 1.43`. Only as many numbers are compared as it has: `== 2.27` matches 2.27.5."""

    operator: str
    version: Version
    text: str

    def holds(self, version: Version) -> bool:
        """Whether a version meets the condition."""
        if self.operator in ("==", "!="):
            return self._is_same(version) == (self.operator == "==")
        order = self._order(version)
        return {">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0}[self.operator]

    def _is_same(self, version: Version) -> bool:
        named = self.version
        if named.rest and not _REVISION.fullmatch(named.rest):
            return _trimmed(version.numbers) == _trimmed(named.numbers) and version.rest == named.rest
        return self._order(version) == 0

    def _order(self, version: Version) -> int:
        order = _compared(version.numbers, self.version.numbers)
        return order or (_compared(version.revision, self.version.revision) if self.version.revision else 0)


def parse(text: str) -> Version:
    """A version from its text: `580.126.09`, `v1.7.3-aws`, `5:27.5.1-1~ubuntu`, `2.1.0amzn5.0`. Raises ValueError."""
    written = _WRITTEN.fullmatch(text.strip()[:MAX_LENGTH])
    if not written:
        raise ValueError(f"{text.strip()[:60]!r} is not a version; expected numbers with dots")
    revision = _REVISION.match(written["rest"])
    return Version(_numbers(written["numbers"]), _numbers(revision[1]) if revision else (), written["rest"])


def rules(text: str) -> tuple[Rule, ...]:
    """The conditions in a row of a manifest: `== 580.126.09`, `>= 1.43, < 1.50`, `1.43 to 1.50`. Raises ValueError."""
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"{text[:60]!r}… has {len(text)} characters; expected at most {MAX_LENGTH} characters in a rule"
        )
    return tuple(rule for part in text.split(",") for rule in _of_part(part.strip()))


def broken(written: str, required: str) -> str:
    """The first condition that a version does not meet, as written; empty if it meets all. Raises ValueError."""
    version = parse(written)
    return next((rule.text for rule in rules(required) if not rule.holds(version)), "")


def is_older(written: str, least: str) -> bool:
    """Whether a version is older than `least`, comparing only the numbers that `least` has. Raises ValueError."""
    return bool(broken(written, f">= {least}"))


def _of_part(part: str) -> list[Rule]:
    """Both ends of a range, `1.43 to 1.50`, as conditions; any other condition unchanged. Raises ValueError."""
    first, word, last = part.partition(" to ")
    if not word:
        return [_rule(part)]
    least, most = _rule(f">= {first}"), _rule(f"<= {last}")
    if not (least.holds(most.version) or most.holds(least.version)):
        raise ValueError(f"{part!r} holds for nothing; expected the lower end first")
    return [least, most]


def _rule(text: str) -> Rule:
    operator = next((operator for operator in OPERATORS if text.startswith(operator)), "")
    if not operator:
        raise ValueError(
            f"{text[:60]!r} is not a rule; expected one of {' '.join(OPERATORS)} and a version, or 1.2 to 1.4"
        )
    return Rule(operator, parse(text[len(operator) :]), text)


def _compared(numbers: tuple[int, ...], named: tuple[int, ...]) -> int:
    """-1, 0 or 1: older, equal or newer, comparing only the numbers given."""
    numbers = numbers[: len(named)]
    for number, other in zip_longest(numbers, named, fillvalue=0):
        if number != other:
            return 1 if number > other else -1
    return 0


def _trimmed(numbers: tuple[int, ...]) -> tuple[int, ...]:
    while numbers and not numbers[-1]:
        numbers = numbers[:-1]
    return numbers


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split("."))
