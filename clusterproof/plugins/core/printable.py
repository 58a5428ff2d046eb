"""Text of a node, made safe for a terminal and a report."""

from __future__ import annotations

MAX_MESSAGE = 4_000  # characters of one message in a report


def printable(text: str, most: int = MAX_MESSAGE) -> str:
    """At most `most` characters of a text, with what could steer a terminal or hide in a report made visible."""
    if text.isprintable() and len(text) <= most:
        return text
    safe = "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape", "replace").decode()
        for char in text[:most]
    )
    return safe if len(text) <= most else f"{safe} … ({len(text)} characters)"
