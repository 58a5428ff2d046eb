"""The host keys that this machine already trusts: OpenSSH's known_hosts files, read and never written."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hmac
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path


class Trust(Enum):
    """What the files say about the key that a host presents."""

    KNOWN = "known"
    UNKNOWN = "unknown"  # no line names the host
    CHANGED = "changed"  # the host is known, by other keys
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class _Line:
    where: str  # file:line
    kind: str
    key: bytes
    revoked: bool


@dataclass(frozen=True, slots=True)
class _HashedName:
    salt: bytes
    digest: bytes

    def is_of(self, name: str) -> bool:
        return hmac.compare_digest(hmac.digest(self.salt, name.encode(), "sha1"), self.digest)


class KnownHosts:
    """The lines of some known_hosts files: plain, hashed and wildcard names, and `@revoked`.

    paramiko's own reader knows neither wildcards nor revocation, and needs time quadratic in the lines. A
    `@cert-authority` line is skipped, as paramiko asks no host for a certificate.
    """

    def __init__(self, files: Iterable[Path]) -> None:
        """Read what can be read: a file that is absent knows no host."""
        self._by_name: defaultdict[str, list[_Line]] = defaultdict(list)
        self._by_hash: list[tuple[_HashedName, _Line]] = []
        self._by_pattern: list[tuple[list[str], _Line]] = []
        for file in files:
            try:
                text = file.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                self._add(line.split(), f"{file}:{number}")

    def trust(self, name: str, key: bytes) -> tuple[Trust, str]:
        """What is known of `key`, shown by the host called `name`; and the line that says so (`file:7`)."""
        lines = self._lines(name)
        same = [line for line in lines if line.key == key]
        for line in same:
            if line.revoked:
                return Trust.REVOKED, line.where
        if same:
            return Trust.KNOWN, same[0].where
        others = [line for line in lines if not line.revoked]
        return (Trust.CHANGED, others[0].where) if others else (Trust.UNKNOWN, "")

    def kinds(self, name: str) -> list[str]:
        """The kinds of key (`ssh-ed25519`, …) by which a host is known: those to ask it for first."""
        return list(dict.fromkeys(line.kind for line in self._lines(name) if not line.revoked))

    def _lines(self, name: str) -> list[_Line]:
        name = name.lower()
        return [
            *self._by_name.get(name, ()),
            *(line for hashed, line in self._by_hash if hashed.is_of(name)),
            *(line for patterns, line in self._by_pattern if _matches(patterns, name)),
        ]

    def _add(self, words: list[str], where: str) -> None:
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#") or marker not in ("", "@revoked"):
            return
        try:
            line = _Line(where, words[1], base64.b64decode(words[2], validate=True), marker == "@revoked")
            hashed = _hashed_name(words[0])
        except (ValueError, binascii.Error):
            return
        names = words[0].lower().split(",")
        if hashed:
            self._by_hash.append((hashed, line))
        elif any(set(name) & set("*?!") for name in names):
            self._by_pattern.append((names, line))
        else:
            for name in names:
                self._by_name[name].append(line)


def _hashed_name(text: str) -> _HashedName | None:
    if not text.startswith("|1|"):
        return None
    salt, digest = text[3:].split("|")
    return _HashedName(base64.b64decode(salt), base64.b64decode(digest))


def _matches(patterns: list[str], name: str) -> bool:
    """Whether a list of patterns names a host; one that begins with `!` and matches rules it out."""
    if any(pattern.startswith("!") and _is_like(name, pattern[1:]) for pattern in patterns):
        return False
    return any(_is_like(name, pattern) for pattern in patterns if not pattern.startswith("!"))


def _is_like(name: str, pattern: str) -> bool:
    """Match `*` and `?`; brackets are part of a name with a port (`[*.example]:2222`), not a set."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
