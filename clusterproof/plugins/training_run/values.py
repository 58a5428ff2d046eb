"""Values of a row that somebody else wrote: what they must be, in one clear error."""

from __future__ import annotations

from math import isfinite

from clusterproof.plugins.training_run.records import RunError

MAX_NUMBER = 2**63
MAX_NAME = 200  # characters


def whole(value: object, what: str, where: str) -> int:
    """A whole number of 0 or more. Raises RunError."""
    text = str(value).strip().removesuffix(".0")  # as tables with gaps have whole numbers
    is_number = isinstance(value, (int, float, str)) and text.isascii() and text.isdecimal()
    if not is_number or len(text) > 19 or int(text) >= MAX_NUMBER:
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a whole number of 0 or more")
    return int(text)


def seconds(value: object, what: str, where: str) -> float:
    """A duration, 0 or more. Raises RunError."""
    number = real(value, what, where)
    if number < 0:
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a duration of 0 or more")
    return number


def real(value: object, what: str, where: str) -> float:
    """A number that is finite. Raises RunError."""
    try:
        number = float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        number = None
    if number is None or not isfinite(number):
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a number")
    return number


def name(value: object, what: str, where: str) -> str:
    """A name on one line. Raises RunError."""
    if not (isinstance(value, str) and value.strip() and value.isprintable() and len(value) <= MAX_NAME):
        raise RunError(f"{where}: {what} is {value!r:.60}; expected a name of at most {MAX_NAME} characters")
    return value.strip()
