"""Two numbers as a message shows them side by side."""

from __future__ import annotations

MAX_FURTHER = 12  # digits: more than a float has
WHOLE, SIGNIFICANT = "f", "g"


def apart(value: float, other: float, digits: int = 0, form: str = WHOLE) -> tuple[str, str]:
    """Both in as few digits as distinguish them: `23.5` and `24`, where in whole numbers both are 24.

    `digits` are those that are shown anyway: decimals, or with SIGNIFICANT all that count.
    """
    further = MAX_FURTHER if value != other else 1
    pairs = ((f"{value:.{digits + more}{form}}", f"{other:.{digits + more}{form}}") for more in range(further))
    shown = ("", "")
    for shown in pairs:
        if shown[0] != shown[1]:
            break
    return _short(shown[0]), _short(shown[1])


MBIT_OF_GB = 8_000
LEAST_IN_GB_PER_S = 0.1  # of a speed; what is slower is shown in Mbit/s, as such networks are


def speed(gb_per_s: float, shown: str = "") -> str:
    """`480 GB/s`, and `57.2 Mbit/s` of what is far less; `shown` are the digits of the first where they were chosen."""
    if 0 < gb_per_s < LEAST_IN_GB_PER_S:
        return f"{gb_per_s * MBIT_OF_GB:.3g} Mbit/s"
    return f"{shown or f'{gb_per_s:.4g}'} GB/s"


def _short(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text
