"""Creates a run's logins from a target, the run's settings, and ssh_config as OpenSSH reads it."""

from __future__ import annotations

import functools
import logging
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabric import Config, Connection
from paramiko.config import SSHConfig
from paramiko.ssh_exception import ConfigParseError

from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.core.nodeset import is_address, is_user
from clusterproof.plugins.core.opened import distrust, in_home
from clusterproof.plugins.transport.ssh import Direct, Jumped, NoRoute, Proxied, Route
from clusterproof.plugins.transport.ssh.host_keys import HostIdentity, KnownHosts
from clusterproof.plugins.transport.ssh.identities import Identities
from clusterproof.plugins.transport.ssh.login import JumpHost, JumpLogin, Login, LoginState

_HOP = re.compile(r"(?:ssh://)?(?:(.*)@)?(?:\[([0-9A-Fa-f:.]+(?:%[\w.-]+)?)\]|([^@:/\[\]]+))(?::([0-9]{1,5}))?/?")
_MAX_INCLUDES = 16  # nesting depth, as in OpenSSH
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*\S)\s*")
_USER_FILE = "~/.ssh/config"
_SYSTEM_FILE = "/etc/ssh/ssh_config"
_USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
_SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
_CHECKING = {"accept-new": "accept-new", "no": "no", "off": "no"}


class _WithoutFqdn(SSHConfig):
    """paramiko asks DNS for this machine's full name at each look-up, for `%l`: slow if DNS is."""

    TOKENS_BY_CONFIG_KEY = {  # noqa: RUF012 - as in the parent
        key: [token for token in tokens if token != "%l"]  # noqa: S105
        for key, tokens in SSHConfig.TOKENS_BY_CONFIG_KEY.items()
    }


@dataclass(slots=True)
class SshConfig:
    """The text of the configuration, divided into its Host and Match blocks.

    A block whose Host line has no wildcards is only parsed for the hosts that it names: if each of 1000 nodes has its
    own block, a look-up among all of them takes 17 ms.
    """

    blocks: list[_Block] = field(default_factory=list)
    _parsed: dict[str, SSHConfig] = field(default_factory=dict)

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
            text = _read_if_there(Path(_USER_FILE), "~/.ssh", is_own=True) + _read_if_there(
                Path(_SYSTEM_FILE), "/etc/ssh"
            )
        return cls(blocks=_blocks(text))

    def for_host(self, name: str, outranking: str = "") -> SSHConfig:
        """The configuration in which `name` can be looked up; lines of `outranking` take precedence.

        Raises InventoryError for invalid ssh_config syntax, or NoRoute if only blocks that name this host have it.
        """
        text = outranking + "".join(block.text for block in self.blocks if block.concerns(name))
        if text not in self._parsed:
            try:
                parsed = _WithoutFqdn.from_text(text)
            except ConfigParseError as problem:
                raise self._invalid(problem) from None
            self._parsed[text] = parsed
        return self._parsed[text]

    def _invalid(self, problem: ConfigParseError) -> InventoryError | NoRoute:
        message = f"the ssh configuration: {problem}; expected what ssh_config(5) says"
        try:
            _WithoutFqdn.from_text("".join(block.text for block in self.blocks if not block.hosts))
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
    """The hosts of ProxyJump in order: `[user@]host[:port]` each."""
    hosts = options.get("proxyjump") or "none"
    return [] if hosts.lower() == "none" else [hop.strip() for hop in hosts.split(",")]


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
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
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


_MAX_JUMPS = 8  # in a row; a ProxyJump may form a loop

_log = logging.getLogger("paramiko")
if _log.level == logging.NOTSET:
    _log.setLevel(logging.CRITICAL)  # the tracebacks that it logs are reported as failures instead


class Logins:
    """Shared by the logins of one run: files that are read once, and jump hosts."""

    def __init__(self, settings: Mapping[str, str], connect_s: float) -> None:
        """Read the ssh configuration. Raises InventoryError."""
        self._settings = settings
        self._connect_s = connect_s
        self._ssh_config = SshConfig.load(settings.get("config", ""))
        self._identities = Identities()
        self._known_hosts: dict[tuple[Path, ...], KnownHosts] = {}
        self._jump_hosts: dict[str, JumpHost] = {}

    def to(self, target: Target) -> Login:
        """The login to a node. Raises NoRoute if ssh_config excludes it."""
        lines = {
            "HostName": target.address,
            "User": target.user or self._settings.get("user", ""),
            "Port": str(target.port or self._settings.get("port", "") or ""),
        }
        return self._login(target.name, lines, 0, LoginState())

    def _login(self, name: str, lines: Mapping[str, str], hops: int, state: LoginState) -> Login:
        connection = self._connection(name, {**lines, "IdentityFile": self._settings.get("identity_file", "")})
        host, port, options = connection.host, connection.port, connection.ssh_config
        if not is_address(host) or not is_user(connection.user):
            raise NoRoute(f"{connection.user!r:.60} at {host!r:.80}: expected a log-in name and a host name")
        identity = HostIdentity(
            known=self._known(known_hosts_files(options, self._settings.get("known_hosts", ""))),
            host=host,
            port=port,
            alias=options.get("hostkeyalias", ""),
            checking=self._checking(host_key_checking(options)),
        )
        offer = self._identities.offer(connection.user, options, self._connect_s)
        route = self._route(name, connection, hops, state)
        return Login(connection, route, identity, offer, self._connect_s, state)

    def _connection(self, name: str, lines: Mapping[str, str]) -> Connection:
        """A Fabric connection for `name`; `lines` of ssh_config override the files."""
        if not all(value.isprintable() for value in lines.values()):
            raise NoRoute(f"{name}: {dict(lines)!r:.200}: expected no control characters")
        outranking = "".join(f"{key} {value}\n" for key, value in lines.items() if value)
        config = Config(lazy=True, ssh_config=self._ssh_config.for_host(name, outranking))  # no fabric.yaml
        try:
            return Connection(
                name,
                config=config,  # its own: a shared one is written to while other threads read it
                gateway=False,
                forward_agent=False,
                connect_timeout=1,  # else ssh_config's; the login sets its own
                connect_kwargs={"look_for_keys": False},  # an empty dict would be ignored; the login sets its own
            )
        except ValueError as problem:
            raise NoRoute(f"the ssh configuration of {name}: {problem}") from None

    def _route(self, name: str, connection: Connection, hops: int, state: LoginState) -> Route:
        path = [hop for hop in jumps(connection.ssh_config) if hop != name]
        if path:
            if hops >= _MAX_JUMPS:
                raise NoRoute(f"the ProxyJump of {name} passes more than {_MAX_JUMPS} hosts; expected an end")
            return self._jumped(path, connection, hops + 1, state)
        command = connection.ssh_config.get("proxycommand")
        return Proxied(command) if command else Direct(connection.host, connection.port)

    def _jumped(self, path: list[str], connection: Connection, hops: int, state: LoginState) -> Route:
        """The route through the last of these jump hosts; the one before it is its jump host, and so on."""
        *before, last = path
        user, name, port = parts_of_hop(last)
        login = self._login(name, {"User": user, "Port": port, "ProxyJump": ",".join(before)}, hops, state)
        host = self._jump_hosts.setdefault(",".join(path), JumpHost(name))
        return Jumped(name, JumpLogin(host, login), connection.host, connection.port)

    def _known(self, files: tuple[Path, ...]) -> KnownHosts:
        if files not in self._known_hosts:
            self._known_hosts[files] = KnownHosts(files)
        return self._known_hosts[files]

    def _checking(self, configured: str) -> str:
        accept_new = self._settings.get("accept_new_host_keys", "") == "yes"
        return "accept-new" if accept_new and configured == "yes" else configured
