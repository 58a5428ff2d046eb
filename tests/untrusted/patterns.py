"""Texts that make an expression work, built from the expression itself, and those on which it works too long."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tests.untrusted.expressions import Expression

try:
    from re import _constants as code  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as code
    import sre_parse as parser

SIGNS = " a0:-.,_(/[\n\t=\"'xé"
TAILS = ("", "\0", "\n!")
ATOMIC_GROUP = getattr(code, "ATOMIC_GROUP", None)
REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT, getattr(code, "POSSESSIVE_REPEAT", None))
MANY = 50  # repetitions from which a repeat is pumped
MOST = 16  # texts per expression
LENGTH = 10_000  # of a text
MIN_S = 0.002  # CPU seconds: anything faster is not measured
CONFIRMED = 5  # times, each alone, to exclude effects of a busy machine's caches
MAX_S = 20.0  # … for all texts of an expression


def hostile(pattern: str, flags: int) -> list[tuple[str, str, str]]:
    """For each repeat of an expression: the text before it, the repeated text, and the text after it."""
    tree = parser.parse(pattern, flags)
    texts: dict[tuple[str, str, str], None] = {}
    whole = _sample(tree)
    for before, body in _repeats(tree, ""):
        for pump in _pumps(body, flags):
            for tail in TAILS:
                texts[before, pump, tail] = None
            texts["", before[-20:] + pump, TAILS[1]] = None
        texts["", before, TAILS[1]] = None  # begun again and again, and never ended
    texts["", whole[:-1] or "a", TAILS[1]] = None
    ordered = sorted(texts, key=lambda attack: (attack[2] != TAILS[1], attack[0] != ""))
    return ordered[:MOST]


def _repeats(tree: Iterable[Any], before: str) -> Iterator[tuple[str, Any]]:
    """Each repeat that may be long, with a text that leads to it."""
    for operation, argument in tree:
        if operation in REPEATS:
            _, most, body = argument
            if most >= MANY:
                yield before, body
            yield from _repeats(body, before)
        elif operation is code.SUBPATTERN:
            yield from _repeats(argument[3], before)
        elif operation is ATOMIC_GROUP:
            yield from _repeats(argument, before)
        elif operation is code.BRANCH:
            for branch in argument[1]:
                yield from _repeats(branch, before)
        elif operation in (code.ASSERT, code.ASSERT_NOT):
            yield from _repeats(argument[1], before)
        before += _sample([(operation, argument)])


def _pumps(body: Any, flags: int) -> list[str]:
    if len(body) == 1:
        fit = [sign for sign in SIGNS if _is_of(body, sign, flags)]
        if fit:
            return fit[:6]
    return [
        _sample(body) or "a",
        *(text for operation, argument in body if (text := _sample([(operation, argument)]))),
    ][:4]


def _is_of(body: Any, sign: str, flags: int) -> bool:
    operation, argument = body[0]
    if operation is code.ANY:
        return sign != "\n" or bool(flags & re.DOTALL)
    if operation is code.LITERAL:
        return argument == ord(sign)
    if operation is code.NOT_LITERAL:
        return argument != ord(sign)
    if operation is code.IN:
        return _is_in(argument, sign)
    if operation is code.SUBPATTERN and len(argument[3]) == 1:
        return _is_of(argument[3], sign, flags)
    return False


_CATEGORIES = {
    code.CATEGORY_DIGIT: r"\d",
    code.CATEGORY_NOT_DIGIT: r"\D",
    code.CATEGORY_SPACE: r"\s",
    code.CATEGORY_NOT_SPACE: r"\S",
    code.CATEGORY_WORD: r"\w",
    code.CATEGORY_NOT_WORD: r"\W",
}


def _is_in(members: Any, sign: str) -> bool:
    is_negated = members[0][0] is code.NEGATE
    is_there = any(
        (operation is code.LITERAL and each == ord(sign))
        or (operation is code.RANGE and each[0] <= ord(sign) <= each[1])
        or (operation is code.CATEGORY and re.match(_CATEGORIES[each], sign) is not None)
        for operation, each in members
    )
    return is_there != is_negated


def _sample(tree: Iterable[Any]) -> str:
    """A text that an expression matches, or nearly matches."""
    return "".join(_sample_of(operation, argument) for operation, argument in tree)


def _sample_of(operation: Any, argument: Any) -> str:
    if operation is code.LITERAL:
        return chr(argument)
    if operation in (code.NOT_LITERAL, code.ANY, code.IN):
        return next((sign for sign in f"a0{SIGNS}!Z\x7f" if _is_of([(operation, argument)], sign, re.DOTALL)), "a")
    if operation in REPEATS:
        return _sample(argument[2]) * max(argument[0], 1 if argument[1] else 0)
    if operation is code.SUBPATTERN:
        return _sample(argument[3])
    if operation is ATOMIC_GROUP:
        return _sample(argument)
    if operation is code.BRANCH:
        return _sample(argument[1][0])
    return ""


def offenders(every: Iterable[Expression]) -> Iterator[str]:
    """Expressions with a text that takes more than three times as long at twice the length, and that text."""
    signal.signal(signal.SIGPROF, _give_up)
    for expression in every:
        signal.setitimer(signal.ITIMER_PROF, MAX_S)
        try:
            slow = _grows(expression)
        except TimeoutError:
            slow = f"more than {MAX_S:g} s"
        signal.setitimer(signal.ITIMER_PROF, 0)
        if slow:
            yield f"{expression.where}: {expression.pattern!r:.200}: {slow}"


def _give_up(*_: object) -> None:
    raise TimeoutError


def _grows(expression: Expression) -> str:
    compiled = re.compile(expression.pattern, expression.flags)
    # findall starts like search, and fullmatch tries all that match tries before it succeeds.
    use = compiled.findall if expression.is_searched else compiled.fullmatch
    for before, pump, tail in hostile(expression.pattern, expression.flags):
        texts = [(before + pump * length)[:length] + tail for length in (LENGTH // 8, LENGTH // 2, LENGTH)]
        if _seconds(use, texts[0]) < MIN_S / 10 and _seconds(use, texts[1]) < MIN_S:
            continue
        if all(_takes_too_long(use, texts[1], texts[2]) for _ in range(CONFIRMED)):
            return f"{use.__name__} of {before!r} + {pump!r} * n + {tail!r}"
    return ""


def _takes_too_long(use: Callable[[str], object], half: str, whole: str) -> bool:
    return _seconds(use, whole) > max(3 * _seconds(use, half), 10 * MIN_S)


def _seconds(use: Callable[[str], object], text: str) -> float:
    """This thread's CPU seconds, the minimum of some runs: independent of the machine's load."""
    least = float("inf")
    for _ in range(5):
        began = time.thread_time()
        use(text)
        least = min(least, time.thread_time() - began)
        if least < MIN_S:
            break
    return least
