"""The user's keys, loaded once and offered to each host in OpenSSH's order."""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from paramiko import AuthenticationException, BadAuthenticationType, PKey, SSHException, Transport
from paramiko.pkey import UnknownKeyType

from clusterproof.plugins.core.opened import in_home, path_exists
from clusterproof.plugins.transport.ssh.agent import SILENT, UserAgent

ABSENT = "is absent"
_DEFAULT_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")


class LoginRefused(AuthenticationException):
    """The host accepts none of the keys; the message lists those tried."""


@dataclass(frozen=True)
class Identity:
    """One IdentityFile: its key, or why there is none."""

    path: str

    @cached_property
    def _loaded(self) -> tuple[PKey | None, str]:
        try:
            return PKey.from_path(self.path), ""
        except FileNotFoundError:
            return None, ABSENT
        except OSError as problem:
            return None, str(problem.strerror)
        except (ValueError, TypeError, SSHException) as problem:  # TypeError: encrypted, in the older form
            encrypted = "password" in str(problem).lower() or "passphrase" in str(problem).lower()
            return (
                None,
                "is encrypted: add it to the agent" if encrypted else f"is not a private key{self._certificate}",
            )
        except (UnknownKeyType, UnsupportedAlgorithm):  # DSA; a hardware token's
            return None, "is of a kind that is not supported: add it to the agent"

    @property
    def _certificate(self) -> str:
        path = Path(f"{self.path}-cert.pub")
        return f", or {path.name} beside it is not its certificate" if path_exists(path) else ""

    @property
    def key(self) -> PKey | None:
        """The private key, with its certificate if `…-cert.pub` exists next to it."""
        return self._loaded[0]

    @property
    def problem(self) -> str:
        """Why there is no key; empty if there is one."""
        return self._loaded[1]

    @property
    def is_absent(self) -> bool:
        """Whether there is no such file."""
        return self.problem == ABSENT

    @cached_property
    def public(self) -> bytes:
        """The public key, available even if the private one is encrypted; empty if it is unknown."""
        if self.key:
            return self.key.asbytes()
        path = Path(self.path if self.path.endswith(".pub") else f"{self.path}.pub")
        try:
            return base64.b64decode(path.read_text(encoding="utf-8").split()[1])
        except (OSError, ValueError, IndexError, binascii.Error):
            return b""


class Identities:
    """Loads each key file once for all hosts."""

    def __init__(self) -> None:
        self._by_path: dict[str, Identity] = {}
        self._is_agent_silent = threading.Event()  # it is not asked again for each host

    def offer(self, user: str, options: Mapping[str, Any], timeout_s: float) -> Offer:
        """The keys to offer to one host, according to ssh_config."""
        files = [path for path in options.get("identityfile", []) if path.lower() != "none"]
        chosen = files or ([] if options.get("identityfile") else list(_DEFAULT_FILES))
        identities = [self._load(path) for path in chosen]
        return Offer(
            user=user,
            identities=identities if files else [identity for identity in identities if not identity.is_absent],
            use_agent=str(options.get("identityagent", "")).lower() != "none",
            only_these=str(options.get("identitiesonly", "no")).lower() == "yes",
            timeout_s=timeout_s,
            is_agent_silent=self._is_agent_silent,
        )

    def _load(self, path: str) -> Identity:
        path = in_home(path)
        identity = self._by_path.setdefault(path, Identity(path))
        _ = identity.public  # loaded here, on the calling thread, not by 64 threads at once
        return identity


class Offer:
    """Logs in to one host: with the identity files first, then with the agent's keys.

    It is an AuthStrategy in paramiko's sense.
    """

    def __init__(
        self,
        user: str,
        identities: list[Identity],
        use_agent: bool,
        only_these: bool,
        timeout_s: float,
        is_agent_silent: threading.Event,
    ) -> None:
        self.user = user
        self.identities = identities
        self.use_agent = use_agent
        self.only_these = only_these
        self.timeout_s = timeout_s
        self.tried: list[str] = []
        self._agent: UserAgent | None = None
        self._is_agent_silent = is_agent_silent

    def authenticate(self, transport: Transport) -> None:
        """Try the keys one after another. Raises LoginRefused, TimeoutError or EOFError."""
        self.tried = []
        deadline = time.monotonic() + self.timeout_s
        try:
            for label, key in self._keys():
                if self._is_accepted(transport, key, deadline):
                    return
                self.tried.append(label)
        finally:
            if self._agent:
                self._agent.close()
        raise LoginRefused(self._story())

    def _is_accepted(self, transport: Transport, key: PKey, deadline: float) -> bool:
        try:
            further = transport.auth_publickey(self.user, key)
        except BadAuthenticationType as refused:
            accepted = ", ".join(refused.allowed_types)
            raise LoginRefused(f"log-in as {self.user} takes {accepted}; expected publickey") from None
        except (SSHException, EOFError) as problem:
            if self._agent and self._agent.problem:  # it has not signed
                raise LoginRefused(self._story()) from None
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no answer to the log-in as {self.user}") from None
            if transport.is_active():
                return False
            if self.tried:  # earlier keys were refused: sshd's MaxAuthTries
                raise LoginRefused(f"{self._story()}; then it was cut off: too many keys?") from None
            raise EOFError(f"cut off during the log-in: {problem}") from None
        if further:
            raise LoginRefused(f"log-in as {self.user} wants {', '.join(further)} too; expected a key to be enough")
        return True

    def _keys(self) -> Iterator[tuple[str, PKey]]:
        offered = set()
        for identity in self.identities:
            if identity.key:
                offered.add(identity.public)
                yield identity.path, identity.key
        configured = {identity.public for identity in self.identities}
        for key in self._agent_keys():
            wanted = not self.only_these or key.asbytes() in configured
            if wanted and key.asbytes() not in offered:
                yield f"the agent's {getattr(key, 'comment', '') or key.get_name()}", key

    def _agent_keys(self) -> tuple[PKey, ...]:
        if not self.use_agent or self._is_agent_silent.is_set():
            return ()
        self._agent = UserAgent(self.timeout_s / 2)
        if self._agent.problem == SILENT:
            self._is_agent_silent.set()
        return tuple(self._agent.get_keys())

    def _agent_problem(self) -> str:
        if self._agent:
            return self._agent.problem
        return SILENT if self.use_agent and self._is_agent_silent.is_set() else ""

    def _story(self) -> str:
        unusable = [f"{identity.path} {identity.problem}" for identity in self.identities if identity.problem]
        tried = f"refused {', '.join(self.tried)}" if self.tried else "no key to offer, in files or in an agent"
        return f"log-in as {self.user}: {'; '.join(filter(None, [tried, *unusable, self._agent_problem()]))}"
