"""ssh_config: its files as one text, the blocks that concern a host, and what its options mean."""

from __future__ import annotations

import functools
import glob
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paramiko.ssh_exception import ConfigParseError

from clusterproof.plugins.core.cluster import InventoryError
from clusterproof.plugins.core.opened import distrust, in_home
from clusterproof.plugins.transport.ssh import NoRoute
from clusterproof.plugins.transport.ssh.config_parser import Commands, ConfigParser

_HOP = re.compile(r"(?:ssh://)?(?:(.*)@)?(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^@:/\[\]]+))(?::([0-9]{1,5}))?/?")
_MAX_INCLUDES = 16  # nesting depth, as in OpenSSH
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)\s*")
_TO_THE_END = re.compile(r"\s*\w+Command\b.*", re.IGNORECASE)  # such as ProxyCommand: the shell reads what it has
_TO_A_COMMENT = re.compile(r"""(?:"[^"]*"|'[^']*'|(?<=\S)#|[^#])*""")
_USER_FILE = "~/.ssh/config"
_SYSTEM_FILE = "/etc/ssh/ssh_config"
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_CHECKING = {"accept-new": "accept-new", "no": "no", "off": "no"}


@dataclass(slots=True)
class SshConfig:
    """The text of the configuration, divided into its Host and Match blocks.

    A block whose Host line has no wildcards is only parsed for the hosts that it names: if each of 1000 nodes has its
    own block, a look-up among all of them takes 17 ms.
    """

    blocks: list[_Block] = field(default_factory=list)
    _parsed: dict[str, ConfigParser] = field(default_factory=dict)
    _commands: Commands = field(default_factory=Commands)

    @classmethod
    def load(cls, path: str = "") -> SshConfig:
        """Load `path`, or else the user's file and then the system's.

        Raises InventoryError, also if others may write the user's file: its ProxyCommand would run.
        """
        if path:
            try:
                text = _read(Path(in_home(path)), "~/.ssh")
            except OSError as problem:
                raise InventoryError(
                    f"the ssh configuration {path}: {problem.strerror}; expected a file that can be read"
                ) from None
        else:
            users = _read_if_there(Path(_USER_FILE), "~/.ssh", is_own=True)
            text = f"{users}Host *\n{_read_if_there(Path(_SYSTEM_FILE), '/etc/ssh')}"
        return cls(blocks=_blocks(text))

    def for_host(self, name: str, outranking: str = "") -> ConfigParser:
        """The configuration in which `name` can be looked up; lines of `outranking` take precedence.

        Raises InventoryError for invalid ssh_config syntax, or NoRoute if only blocks that name this host have it.
        """
        text = outranking + "".join(block.text for block in self.blocks if block.concerns(name))
        if text not in self._parsed:
            try:
                parsed = ConfigParser.from_text(text)
            except ConfigParseError as problem:
                raise self._invalid(problem) from None
            parsed.commands = self._commands
            self._parsed[text] = parsed
        return self._parsed[text]

    def _invalid(self, problem: ConfigParseError) -> InventoryError | NoRoute:
        message = f"the ssh configuration: {problem}; expected what ssh_config(5) says"
        try:
            ConfigParser.from_text("".join(block.text for block in self.blocks if not block.hosts))
        except ConfigParseError:
            return InventoryError(message)
        return NoRoute(message)


@dataclass(frozen=True, slots=True)
class _Block:
    text: str
    hosts: frozenset[str] = frozenset()  # empty: may apply to any host

    def concerns(self, name: str) -> bool:
        return not self.hosts or name in self.hosts


def jumps(options: Mapping[str, Any]) -> list[str]:
    """The hosts of ProxyJump in order: `[user@]host[:port]` each; none if a ProxyCommand precedes it, be it `none`."""
    first = next((key for key in options if key in ("proxyjump", "proxycommand")), "")
    hosts = options[first] if first == "proxyjump" else "none"
    return [] if hosts.lower() == "none" else [hop.strip() for hop in hosts.split(",")]


def proxy_command(options: Mapping[str, Any]) -> str:
    """The ProxyCommand; empty if there is none, or a ProxyJump precedes it."""
    return "" if jumps(options) else options.get("proxycommand") or ""


def parts_of_hop(hop: str) -> tuple[str, str, str]:
    """The user, host and port of a ProxyJump's hop; the first and last may be empty. Raises NoRoute."""
    match = _HOP.fullmatch(hop)
    if not match:
        raise NoRoute(f"the ProxyJump {hop!r:.80}; expected [user@]HOST[:port], and an IPv6 address in brackets")
    user, address, host, port = match.groups("")
    return user, address or host, port


def host_key_checking(options: Mapping[str, Any]) -> str:
    """How strictly to check host keys: `yes` (also for `ask`, because nobody can be asked), `accept-new` or `no`."""
    return _CHECKING.get(str(options.get("stricthostkeychecking", "yes")).lower(), "yes")


def known_hosts_files(options: Mapping[str, Any], further: str = "") -> tuple[Path, ...]:
    """The files of trusted host keys; `further` is the inventory's own, and comes first."""
    files = [further] if further else []
    for key, default in (
        ("userknownhostsfile", _USER_KNOWN_HOSTS),
        ("globalknownhostsfile", _SYSTEM_KNOWN_HOSTS),
    ):
        files += _split(str(options.get(key) or default))
    return tuple(Path(in_home(word)) for word in files if word.lower() != "none")


def _read_if_there(path: Path, folder: str, depth: int = 0, *, is_own: bool = False) -> str:
    try:
        return _read(Path(in_home(path)), folder, depth, is_own=is_own)
    except OSError:
        return ""


def _read(path: Path, folder: str, depth: int = 0, *, is_own: bool = False) -> str:
    """The text of a file, with Include lines replaced by the files; relative paths are in `folder`.

    An included Host or Match block applies everywhere: it is not restricted by the block around the Include.
    """
    doubt = distrust(path) if is_own else ""
    if doubt:
        raise InventoryError(f"the ssh configuration {path} {doubt}; expected a file that only you and root write")
    lines = []
    around = "Host *"  # the block to continue after an included file
    for whole in path.read_text(encoding="utf-8", errors="replace").splitlines():
        line = (_TO_THE_END.fullmatch(whole) or _TO_A_COMMENT.match(whole) or [""])[0]
        match = _LINE.fullmatch(line)
        word = match.group(1).lower() if match else ""
        if match and word == "include" and depth < _MAX_INCLUDES:
            for pattern in _split(match.group(2)):
                for included in _glob(pattern, folder):
                    lines += [_read_if_there(included, folder, depth + 1, is_own=is_own), around]
            continue
        if word in ("host", "match"):
            around = line
        lines.append(line)
    return "\n".join([*lines, ""])


def _glob(pattern: str, folder: str) -> list[Path]:
    path = Path(in_home(folder)) / in_home(pattern)
    found = glob.glob(str(path))  # noqa: PTH207 - Path's finds hidden files too, such as those of an open editor
    return sorted(map(Path, found))


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
    """The hosts that a block's first line names; none if it may match others too."""
    match = _LINE.fullmatch(line)
    if not match or match.group(1).lower() != "host" or set(match.group(2)) & set("*?!\"'[\\"):
        return frozenset()
    return frozenset(match.group(2).split())


@functools.cache
def _split(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError:  # an unbalanced quote
        return tuple(text.split())
