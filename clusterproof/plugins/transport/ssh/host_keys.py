"""Verifies host keys against OpenSSH's known_hosts files, which are never written."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hmac
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from shlex import quote

from paramiko import MissingHostKeyPolicy, PKey, SSHClient, SSHException, Transport

from clusterproof.plugins.core.opened import in_home

_SSH_PORT = 22
_USERS = "~/.ssh/known_hosts"
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}  # what a server offers for a key of that kind


class Trust(Enum):
    """What known_hosts says of a host's key."""

    KNOWN = "known"
    UNKNOWN = "unknown"  # no line names the host
    CHANGED = "changed"  # the host is known by other keys
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
    """The entries of several known_hosts files: plain, hashed and wildcard names, and `@revoked`.

    paramiko's own reader supports neither wildcards nor revocation, and takes time quadratic in the lines. A
    `@cert-authority` line is skipped, because paramiko requests no certificate from a host.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        """Read the files; a missing one is treated as empty."""
        first = next((str(file) for file in files if str(file) != os.devnull), in_home(_USERS))
        self.where_to_add = _USERS if first == in_home(_USERS) else quote(first)
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
        """What is known about `key`, presented by the host `name`; and the line that says so (`file:7`)."""
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
        """The kinds of key (`ssh-ed25519`, …) by which a host is known, to request them first."""
        return list(dict.fromkeys(line.kind for line in self._lines(name) if not line.revoked))

    def _lines(self, name: str) -> list[_Line]:
        name = name.lower()
        return [
            *self._by_name.get(name, ()),
            *(line for hashed, line in self._by_hash if hashed.is_of(name)),
            *(line for patterns, line in self._by_pattern if matches(patterns, name)),
        ]

    def _add(self, fields: list[str], where: str) -> None:
        marker = fields.pop(0) if fields and fields[0].startswith("@") else ""
        if len(fields) < 3 or fields[0].startswith("#") or marker not in ("", "@revoked"):
            return
        try:
            line = _Line(where, fields[1], base64.b64decode(fields[2], validate=True), marker == "@revoked")
            hashed = _hashed_name(fields[0])
        except (ValueError, binascii.Error):
            return
        names = fields[0].lower().split(",")
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


def matches(patterns: list[str], name: str) -> bool:
    """Whether a list of patterns matches a host; a matching pattern that begins with `!` excludes it."""
    if any(pattern.startswith("!") and _is_like(name, pattern[1:]) for pattern in patterns):
        return False
    return any(_is_like(name, pattern) for pattern in patterns if not pattern.startswith("!"))


def _is_like(name: str, pattern: str) -> bool:
    """Match `*` and `?`; brackets are part of a name with a port (`[*.example]:2222`), not a set."""
    return fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


class HostKeyRejected(SSHException):
    """The host is not provably the intended one; the message says what to do."""


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """The name under which a host is looked up, and when its key is accepted.

    `alias` is ssh_config's HostKeyAlias. `checking` is `yes`, `accept-new` (an unknown host is accepted, for this run)
    or `no` (every host is accepted).
    """

    known: KnownHosts
    host: str
    port: int
    alias: str
    checking: str

    def kinds(self) -> list[str]:
        """The host key algorithms to prefer: those of the known keys."""
        kinds = self.known.kinds(self._name()) or self.known.kinds(self.host)
        return [signature for kind in kinds for signature in _SIGNATURES.get(kind, (kind,))]

    def check(self, key: PKey) -> None:
        """Raise HostKeyRejected unless the host can be trusted."""
        if self.checking == "no":
            return
        trust, where = self.known.trust(self._name(), key.asbytes())
        if trust is Trust.UNKNOWN and not self.alias:  # as in OpenSSH: a line without the port does as well
            bare, bare_where = self.known.trust(self.host, key.asbytes())
            if bare in (Trust.KNOWN, Trust.REVOKED):
                trust, where = bare, bare_where
        if trust is Trust.KNOWN or (trust is Trust.UNKNOWN and self.checking == "accept-new"):
            return
        raise HostKeyRejected(self._advice(trust, where, f"{key.get_name()} {key.fingerprint}"))

    def _advice(self, trust: Trust, where: str, shown: str) -> str:
        if trust is Trust.UNKNOWN:
            scan = f"ssh-keyscan {'' if self.port == _SSH_PORT else f'-p {self.port} '}{self.host}"
            named = f" (under the name {self.alias})" if self.alias else ""
            return (
                f"unknown host key {shown}; if it is right: {scan} >> {self.known.where_to_add}{named}, "
                "or --accept-new-host-keys for this run"
            )
        if trust is Trust.REVOKED:
            return f"revoked host key {shown} ({where}); expected another key: do not trust this host"
        file = where.rpartition(":")[0]
        return (
            f"changed host key {shown}; expected the one of {where}. If the node was replaced: "
            f"ssh-keygen -R '{self._name()}' -f {quote(file)}; "
            "if it was not, someone may be intercepting the connection"
        )

    def _name(self) -> str:
        return self.alias or (self.host if self.port == _SSH_PORT else f"[{self.host}]:{self.port}")


class HostKeyPolicy(MissingHostKeyPolicy):
    """Passes every key to a HostIdentity: the client itself is given no known hosts."""

    def __init__(self, identity: HostIdentity) -> None:
        self._identity = identity

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:  # noqa: ARG002
        """Raise HostKeyRejected unless the host can be trusted."""
        self._identity.check(key)


def prefer_kinds(transport: Transport, kinds: list[str]) -> None:
    """Request a key of these kinds first: a host has several, and presents one."""
    options = transport.get_security_options()
    offered = tuple(options.key_types)
    known = tuple(kind for kind in kinds if kind in offered)
    options.key_types = known + tuple(kind for kind in offered if kind not in known)
