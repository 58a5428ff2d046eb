"""Text as XML may hold it."""

from __future__ import annotations

import re

MAX_ATTRIBUTE = 500  # characters of a message; the element's text has all


def legal(text: str) -> str:
    """The text without what XML 1.0 cannot hold."""
    return _ILLEGAL.sub("�", text)


_ILLEGAL = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
