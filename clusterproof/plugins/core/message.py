"""Formats what messages show: how many and which, numbers side by side, untrusted text made safe."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LISTED = 8
MAX_MESSAGE = 4_000  # characters of one message in a report
MAX_QUOTED = 200  # characters of a message of others within one
MAX_FURTHER = 12  # digits: more than a float has
MBIT_OF_GB = 8_000
MIN_IN_GB_PER_S = 0.1  # slower speeds are shown in Mbit/s
WHOLE, SIGNIFICANT = "f", "g"


def listed(items: Iterable[str]) -> str:
    """The first few items, without duplicates, and how many more there are."""
    each_once = list(dict.fromkeys(items))
    more = f", and {len(each_once) - MAX_LISTED} more" if len(each_once) > MAX_LISTED else ""
    return ", ".join(each_once[:MAX_LISTED]) + more


def number_of(count: int, singular: str, plural: str = "") -> str:
    """`1 node`, `1,200 nodes`; give `plural` if it is not `singular` plus s."""
    return f"{count:,} {singular if count == 1 else plural or f'{singular}s'}"


def printable(text: str, most: int = MAX_MESSAGE) -> str:
    """At most `most` characters of a text; characters that could control a terminal or hide text become visible."""
    if text.isprintable() and len(text) <= most:
        return text
    safe = "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "replace").decode()
        for char in text[:most]
    )
    return safe if len(text) <= most else f"{safe} … ({len(text)} characters)"


def quoted(text: str) -> str:
    """The beginning of another's message, in one line that does not end as a message of a check does."""
    return " ".join(text.split())[:MAX_QUOTED].replace("; expected ", ", expected ")


def format_pair(value: float, other: float, digits: int = 0, form: str = WHOLE) -> tuple[str, str]:
    """Both numbers in as few digits as distinguish them: `23.5` and `24`, where as whole numbers both are 24.

    `digits` is the minimum: decimals, or with SIGNIFICANT all significant digits.
    """
    further = MAX_FURTHER if value != other else 1
    pairs = ((f"{value:.{digits + more}{form}}", f"{other:.{digits + more}{form}}") for more in range(further))
    shown = ("", "")
    for shown in pairs:
        if shown[0] != shown[1]:
            break
    return _short(shown[0]), _short(shown[1])


def speed(gb_per_s: float, shown: str = "") -> str:
    """`480 GB/s`, or `57.2 Mbit/s` for far slower ones; `shown` is the first number's text where already chosen."""
    if 0 < gb_per_s < MIN_IN_GB_PER_S:
        return f"{gb_per_s * MBIT_OF_GB:.3g} Mbit/s"
    return f"{shown or f'{gb_per_s:.4g}'} GB/s"


def format_speeds(gb_per_s: float, other: float) -> tuple[str, str]:
    """Both speeds in as few digits as distinguish them: `479.98 GB/s` and `480 GB/s`."""
    if 0 < max(gb_per_s, other) < MIN_IN_GB_PER_S:
        mbit, others_mbit = format_pair(gb_per_s * MBIT_OF_GB, other * MBIT_OF_GB, 3, SIGNIFICANT)
        return f"{mbit} Mbit/s", f"{others_mbit} Mbit/s"
    shown, others_shown = format_pair(gb_per_s, other, 4, SIGNIFICANT)
    return speed(gb_per_s, shown), speed(other, others_shown)


def _short(text: str) -> str:
    if "e+" in text:
        return f"{float(text):.0f}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
