"""The exit status that a person wrote down behind an output."""

from __future__ import annotations

import re

LINES = 5  # from the end, in which it is looked for
_EXIT = re.compile(
    r"\W{0,8}(?:exit(?:ed)?|rc|return|status)(?:[ _-]?(?:code|status|value|with))?\s{0,4}[:=]?\s{0,4}(\d{1,3})\W{0,8}",
    re.IGNORECASE | re.ASCII,
)


def exit_status(text: str) -> int | None:
    """The number in a line like `exit code: 205` or `rc=0` at the end; None where there is none."""
    for line in reversed(text.rstrip()[-2000:].split("\n")[-LINES:]):
        found = _EXIT.fullmatch(line[:200])
        if found:
            return int(found[1])
    return None
