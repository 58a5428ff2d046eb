"""Whether the key that a host shows is the one it should have. Nothing is ever added to a file."""

from __future__ import annotations

from dataclasses import dataclass

from paramiko import MissingHostKeyPolicy, PKey, SSHClient, SSHException, Transport

from clusterproof.plugins.transport.known_hosts import KnownHosts, Trust

_SSH_PORT = 22
_SIGNATURES = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}  # what a server offers for a key of that kind


class HostKeyRejected(SSHException):
    """The host is not, or not provably, the one that was meant; the message says what to do."""


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """Under which name a host is looked up, and when its key is accepted.

    `alias` is ssh_config's HostKeyAlias. `checking` is `yes`, `accept-new` (an unknown host is accepted, for this run)
    or `no` (every host is).
    """

    known: KnownHosts
    host: str
    port: int
    alias: str
    checking: str

    def kinds(self) -> list[str]:
        """The host key algorithms to prefer: those of the keys that are known."""
        kinds = self.known.kinds(self._name()) or self.known.kinds(self.host)
        return [signature for kind in kinds for signature in _SIGNATURES.get(kind, (kind,))]

    def check(self, key: PKey) -> None:
        """Raise HostKeyRejected unless the host may be believed."""
        if self.checking == "no":
            return
        trust, where = self.known.trust(self._name(), key.asbytes())
        if trust is Trust.UNKNOWN and not self.alias:  # as OpenSSH: a line without the port does as well
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
                f"unknown host key {shown}; if it is right: {scan} >> ~/.ssh/known_hosts{named}, "
                "or --accept-new-host-keys for this run"
            )
        if trust is Trust.REVOKED:
            return f"revoked host key {shown} ({where}); expected another key: do not trust this host"
        file = where.rpartition(":")[0]
        return (
            f"changed host key {shown}; expected the one of {where}. If the node was replaced: "
            f"ssh-keygen -R '{self._name()}' -f {file}; if it was not, someone may be intercepting the connection"
        )

    def _name(self) -> str:
        return self.alias or (self.host if self.port == _SSH_PORT else f"[{self.host}]:{self.port}")


class HostKeyPolicy(MissingHostKeyPolicy):
    """Hands every key to a HostIdentity: the client itself is given no known hosts."""

    def __init__(self, identity: HostIdentity) -> None:
        self._identity = identity

    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:  # noqa: ARG002
        """Raise HostKeyRejected unless the host may be believed."""
        self._identity.check(key)


def prefer_kinds(transport: Transport, kinds: list[str]) -> None:
    """Ask the host for a key of these kinds first: it has several, and shows one."""
    options = transport.get_security_options()
    offered = tuple(options.key_types)
    known = tuple(kind for kind in kinds if kind in offered)
    options.key_types = known + tuple(kind for kind in offered if kind not in known)
