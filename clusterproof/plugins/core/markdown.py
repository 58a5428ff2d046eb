"""Text of others in Markdown."""

from __future__ import annotations

import re

# What Markdown, or GitHub, reads as more than itself: anywhere, or at the beginning of a line.
_MEANING = re.compile(
    r"([\\`*\[\]#|<>~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=//)|(?<=[wW]{3})\.|^[-+=]|(?<=^\d)[.)])"
)
_REFERENCE = re.compile(r"[@#!](?=\w)")  # a user, an issue, a merge request: whatever is escaped


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line, and in which a ticket finds no link and nobody to notify."""
    shown = _MEANING.sub(r"\\\1", " ".join(text.split())).replace("&", "&amp;")
    return _REFERENCE.sub(r"\g<0><!-- -->", shown)
