"""Which words may be a log-in name, a host name or an address."""

from __future__ import annotations

import re

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*")
_ADDRESS = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:%-]*")  # a name, IPv4, or IPv6 with its zone


def is_user(text: str) -> bool:
    """Whether `text` may be a log-in name: nothing that a shell reads, for it reaches a ProxyCommand's."""
    return _USER.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether `text` may be a host name or an address: it reaches a ProxyCommand's shell."""
    return _ADDRESS.fullmatch(text) is not None
