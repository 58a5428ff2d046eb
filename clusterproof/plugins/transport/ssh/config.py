"""ssh_config as OpenSSH reads it, as far as paramiko can: read once, looked up for each host."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paramiko.config import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from clusterproof.plugins.core.cluster import InventoryError

_MAX_INCLUDES = 16  # deep, as in OpenSSH
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)\s*")
_USER_FILE = "~/.ssh/config"
_SYSTEM_FILE = "/etc/ssh/ssh_config"
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_CHECKING = {"accept-new": "accept-new", "no": "no", "off": "no"}


class _WithoutFqdn(SSHConfig):
    """paramiko asks DNS for this machine's own full name at each look-up, for `%l`: slow where DNS is."""

    TOKENS_BY_CONFIG_KEY = {  # noqa: RUF012 - as in the parent
        key: [token for token in tokens if token != "%l"]  # noqa: S105
        for key, tokens in SSHConfig.TOKENS_BY_CONFIG_KEY.items()
    }


@dataclass(slots=True)
class SshConfig:
    """The text of the configuration, cut into its Host and Match blocks.

    A block whose Host line has no wildcards is parsed only for the hosts that it names: where each of 1000 nodes
    has its block, a look-up among all of them takes 17 ms.
    """

    blocks: list[_Block] = field(default_factory=list)
    _parsed: dict[str, SSHConfig] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str = "") -> SshConfig:
        """Read `path`, or else the user's file and then the system's. Raises InventoryError."""
        if path:
            try:
                text = _read(Path(path).expanduser(), "~/.ssh")
            except OSError as problem:
                raise InventoryError(
                    f"the ssh configuration {path}: {problem.strerror}; expected a file that can be read"
                ) from None
        else:
            text = _read_if_there(Path(_USER_FILE), "~/.ssh") + _read_if_there(Path(_SYSTEM_FILE), "/etc/ssh")
        return cls(blocks=_blocks(text))

    def for_host(self, name: str, outranking: str = "") -> SSHConfig:
        """The configuration in which `name` can be looked up; lines of `outranking` come before all others.

        Raises InventoryError for what is not ssh_config.
        """
        text = outranking + "".join(block.text for block in self.blocks if block.concerns(name))
        if text not in self._parsed:
            try:
                parsed = _WithoutFqdn.from_text(text)
            except ConfigParseError as problem:
                raise InventoryError(f"the ssh configuration: {problem}; expected what ssh_config(5) says") from None
            self._parsed[text] = parsed
        return self._parsed[text]


@dataclass(frozen=True, slots=True)
class _Block:
    text: str
    hosts: frozenset[str] = frozenset()  # empty: may concern any host

    def concerns(self, name: str) -> bool:
        return not self.hosts or name in self.hosts


def jumps(options: Mapping[str, Any]) -> list[str]:
    """The hosts of ProxyJump, in the order in which they are passed: `[user@]host[:port]` each."""
    hosts = options.get("proxyjump") or "none"
    return [] if hosts.lower() == "none" else [hop.strip() for hop in hosts.split(",")]


def host_key_checking(options: Mapping[str, Any]) -> str:
    """How strict to be with host keys: `yes` (also for `ask`, as nobody is asked), `accept-new` or `no`."""
    return _CHECKING.get(str(options.get("stricthostkeychecking", "yes")).lower(), "yes")


def known_hosts_files(options: Mapping[str, Any], further: str = "") -> tuple[Path, ...]:
    """The files with the host keys that are trusted; `further` is the inventory's own, and comes first."""
    files = [further] if further else []
    for key, default in (
        ("userknownhostsfile", _USER_KNOWN_HOSTS),
        ("globalknownhostsfile", _SYSTEM_KNOWN_HOSTS),
    ):
        files += _split(str(options.get(key) or default))
    return tuple(Path(word).expanduser() for word in files if word.lower() != "none")


def _read_if_there(path: Path, folder: str) -> str:
    try:
        return _read(path.expanduser(), folder)
    except OSError:
        return ""


def _read(path: Path, folder: str, depth: int = 0) -> str:
    """The text of a file with the files of its Include lines in their place; relative ones lie in `folder`.

    An included Host or Match block holds wherever it stands: here it is not narrowed by the block around it.
    """
    lines = []
    around = "Host *"  # the block to go on with behind an included file
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        match = _LINE.fullmatch(line)
        word = match.group(1).lower() if match else ""
        if match and word == "include" and depth < _MAX_INCLUDES:
            for pattern in _split(match.group(2)):
                for included in _glob(pattern, folder):
                    lines += [_read_quietly(included, folder, depth + 1), around]
            continue
        if word in ("host", "match"):
            around = line
        lines.append(line)
    return "\n".join([*lines, ""])


def _read_quietly(path: Path, folder: str, depth: int) -> str:
    try:
        return _read(path, folder, depth)
    except OSError:
        return ""


def _glob(pattern: str, folder: str) -> list[Path]:
    path = Path(folder).expanduser() / Path(pattern).expanduser()
    return sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))


def _blocks(text: str) -> list[_Block]:
    blocks: list[list[str]] = [["Host *\n"]]
    for line in text.splitlines(keepends=True):
        match = _LINE.fullmatch(line)
        if match and match.group(1).lower() in ("host", "match"):
            blocks.append([])
        blocks[-1].append(line)
    any_host = "canonicalizehostname" in text.lower()  # then a host is looked up again under another name
    return [_Block("".join(lines), frozenset() if any_host else _hosts(lines[0])) for lines in blocks]


def _hosts(line: str) -> frozenset[str]:
    """The hosts that a block's first line names; none where it may mean others too."""
    match = _LINE.fullmatch(line)
    if not match or match.group(1).lower() != "host" or set(match.group(2)) & set("*?!\"'[\\"):
        return frozenset()
    return frozenset(match.group(2).split())


@functools.cache
def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # a quote without its partner
        return tuple(text.split())
