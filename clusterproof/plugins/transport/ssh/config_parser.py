"""paramiko's parser of ssh_config, with Match, tokens and canonical names as OpenSSH has them."""

from __future__ import annotations

import getpass
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from paramiko.config import SSH_PORT, SSHConfig
from paramiko.ssh_exception import ConfigParseError

from clusterproof.plugins.core.opened import in_home
from clusterproof.plugins.transport.ssh.host_keys import matches

EXEC_S = 10.0  # for a command of Match exec
_REAP_S = 1.0  # for one that was killed
_WITHOUT_ARGUMENT = ("all", "canonical", "final")
_OF_FILES = "%dhikLlnpru"
_TOKENS = {
    "hostname": "%h",
    "identityfile": _OF_FILES,
    "match-exec": _OF_FILES,
    "proxycommand": "%hnpr",
    "proxyjump": "%hnpr",
    "userknownhostsfile": _OF_FILES,
}
_FILES = ("identityfile", "userknownhostsfile")  # in which ${VARIABLES} are replaced
_TOKEN = re.compile(r"%(.)")
_VARIABLE = re.compile(r"\$\{(\w{1,200})\}")


@dataclass(frozen=True, slots=True)
class _Criterion:
    """A condition of a Match line."""

    word: str
    argument: str
    is_negated: bool


@dataclass(slots=True)
class Commands:
    """The commands of Match exec in one run: each is run once, and none again that did not end."""

    _succeeded: dict[str, bool] = field(default_factory=dict)
    _endless: set[str] = field(default_factory=set)

    def succeeds(self, command: str, as_written: str) -> bool:
        """Whether the command ends with 0. Raises ConfigParseError if it does not end in time, or cannot be started."""
        if as_written not in self._endless and command not in self._succeeded:
            try:
                self._succeeded[command] = _ran(command) == 0
            except subprocess.TimeoutExpired:
                self._endless.add(as_written)
            except OSError as problem:
                raise ConfigParseError(f"Match exec {as_written!r:.80} cannot be run: {problem.strerror}") from None
        if as_written in self._endless:
            raise ConfigParseError(f"Match exec {as_written!r:.80} did not end within {EXEC_S:g} s")
        return self._succeeded[command]


def _ran(command: str) -> int:
    """The exit code of a command, which reads nothing; what it prints on standard error is shown, as by OpenSSH."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(EXEC_S)
    except BaseException:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_REAP_S)
        raise


class ConfigParser(SSHConfig):
    """Overrides what paramiko's does otherwise.

    It takes criteria of Match in capital letters, and those that it does not know, for met; does not know
    `Match final all`, which Red Hat's files begin with; gives commands this process's standard input, which pytest has
    closed; asks DNS for this machine's full name at each look-up; and requires CanonicalDomains.
    """

    commands = Commands()  # each run sets its own

    def _get_matches(self, match: str) -> list[_Criterion]:
        try:
            words = shlex.split(match)
        except ValueError as problem:
            raise ConfigParseError(f"Unparsable Match {match}: {problem}") from None
        criteria = []
        while words:
            word, equals, argument = words.pop(0).partition("=")
            is_negated, word = word.startswith("!"), word.removeprefix("!").lower()
            if word not in _WITHOUT_ARGUMENT and not equals:
                if not words:
                    raise ConfigParseError(f"Missing parameter to Match {word!r} keyword")
                argument = words.pop(0)
            criteria.append(_Criterion(word, argument, is_negated))
        return criteria

    def _does_match(
        self,
        match_list: Sequence[_Criterion],
        target_hostname: str,
        canonical: bool,
        final: bool,
        options: Mapping[str, Any],
    ) -> bool:
        passes = {"all": True, "canonical": canonical, "final": final}
        return bool(match_list) and all(
            (passes[criterion.word] if criterion.word in passes else self._is_met(criterion, target_hostname, options))
            != criterion.is_negated
            for criterion in match_list
        )

    def _is_met(self, criterion: _Criterion, name: str, options: Mapping[str, Any]) -> bool:
        if criterion.word == "exec":
            command = self._tokenize(options, name, "match-exec", criterion.argument)
            return self.commands.succeeds(command, criterion.argument)
        seen = {
            "host": _host(options, name),
            "originalhost": name,
            "user": options.get("user") or _local_user(),
            "localuser": _local_user(),
            "tagged": options.get("tag", ""),
        }
        if criterion.word not in seen:
            raise ConfigParseError(f"Match {criterion.word:.40} is not supported here")
        return matches(criterion.argument.split(","), seen[criterion.word])

    def _lookup(self, hostname: str, options: Any = None, canonical: bool = False, final: bool = False) -> Any:
        options = super()._lookup(hostname, options, canonical, final)  # type: ignore[misc] # not in its stubs
        if "canonicalizehostname" in options:
            options.setdefault("canonicaldomains", "")
        return options

    def _tokenize(self, config: Mapping[str, Any], target_hostname: str, key: str, value: str) -> str:
        allowed, host = _TOKENS.get(key, ""), _host(config, target_hostname)
        if not allowed:
            return value
        user = _local_user()
        tokens = {
            "%": "%",
            "d": in_home("~"),
            "h": target_hostname if key == "hostname" else host,
            "i": os.getuid(),
            "k": config.get("hostkeyalias") or target_hostname,
            "L": socket.gethostname().partition(".")[0],
            "l": socket.gethostname(),
            "n": target_hostname,
            "p": config.get("port", SSH_PORT),
            "r": config.get("user") or user,
            "u": user,
        }
        if key == "identityfile":
            value = in_home(value)
        if key in _FILES:
            value = _VARIABLE.sub(lambda variable: os.environ.get(variable[1], variable[0]), value)
        return _TOKEN.sub(lambda token: str(tokens[token[1]]) if token[1] in allowed else token[0], value)


def _host(options: Mapping[str, Any], name: str) -> str:
    """The host's name or address by HostName, in which `%h` may stand."""
    return str(options.get("hostname", name)).replace("%h", name)


def _local_user() -> str:
    """The name of the user who runs this; empty for one without a name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
