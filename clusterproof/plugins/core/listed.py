"""How many things there are, and which, in one message."""

from __future__ import annotations

from collections.abc import Iterable

MAX_LISTED = 8


def listed(found: Iterable[str]) -> str:
    """The first few, each once, and how many more there are."""
    data = list(dict.fromkeys(found))
    more = f", and {len(data) - MAX_LISTED} more" if len(data) > MAX_LISTED else ""
    return ", ".join(data[:MAX_LISTED]) + more


def number_of(count: int, one: str, many: str = "") -> str:
    """`1 node`, `3 nodes`; `many` where that is not `one` with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
