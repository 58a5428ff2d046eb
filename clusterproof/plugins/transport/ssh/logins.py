"""Makes the log-ins of a run: from a target, the run's settings and ssh_config."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from fabric import Config, Connection

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.nodeset import is_address, is_user
from clusterproof.plugins.transport.ssh.config import SshConfig, host_key_checking, jumps, known_hosts_files
from clusterproof.plugins.transport.ssh.host_keys import HostIdentity, KnownHosts
from clusterproof.plugins.transport.ssh.identities import Identities
from clusterproof.plugins.transport.ssh.login import JumpHost, JumpLogin, Login
from clusterproof.plugins.transport.ssh.routes import Direct, Jumped, NoRoute, Proxied, Route

_MAX_JUMPS = 8  # in a row; a ProxyJump that leads back to itself has no end

_log = logging.getLogger("paramiko")
if _log.level == logging.NOTSET:
    _log.setLevel(logging.CRITICAL)  # the tracebacks that it logs are reported as a failure instead


class Logins:
    """Everything that the log-ins of one run share: files that are read once, and jump hosts."""

    def __init__(self, settings: Mapping[str, str], connect_s: float) -> None:
        """Read the ssh configuration. Raises InventoryError."""
        self._settings = settings
        self._connect_s = connect_s
        self._ssh_config = SshConfig.load(settings.get("config", ""))
        self._identities = Identities()
        self._known_hosts: dict[tuple[Path, ...], KnownHosts] = {}
        self._jump_hosts: dict[str, JumpHost] = {}

    def to(self, target: Target) -> Login:
        """The log-in to a node. Raises NoRoute where ssh_config leads nowhere."""
        lines = {
            "HostName": target.address,
            "User": target.user or self._settings.get("user", ""),
            "Port": str(target.port or self._settings.get("port", "") or ""),
        }
        return self._login(target.name, lines, 0, threading.Event())

    def _login(self, name: str, lines: Mapping[str, str], hops: int, abandoned: threading.Event) -> Login:
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
        route = self._route(name, connection, hops, abandoned)
        return Login(connection, route, identity, offer, self._connect_s, abandoned)

    def _connection(self, name: str, lines: Mapping[str, str]) -> Connection:
        """A Fabric connection that has looked `name` up; `lines` of ssh_config outrank the files."""
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
                connect_timeout=1,  # else ssh_config's; the log-in sets its own
                connect_kwargs={"look_for_keys": False},  # an empty one is taken for none; the log-in sets its own
            )
        except ValueError as problem:
            raise NoRoute(f"the ssh configuration of {name}: {problem}") from None

    def _route(self, name: str, connection: Connection, hops: int, abandoned: threading.Event) -> Route:
        path = [hop for hop in jumps(connection.ssh_config) if hop != name]
        if path:
            if hops >= _MAX_JUMPS:
                raise NoRoute(f"the ProxyJump of {name} passes more than {_MAX_JUMPS} hosts; expected an end")
            return self._jumped(path, connection, hops + 1, abandoned)
        command = connection.ssh_config.get("proxycommand")
        return Proxied(command) if command else Direct(connection.host, connection.port)

    def _jumped(self, path: list[str], connection: Connection, hops: int, abandoned: threading.Event) -> Route:
        """The route through the last host of a path of jumps; the one before it is its own jump host, and so on."""
        *before, last = path
        user, _, host_port = last.removeprefix("ssh://").rpartition("@")
        name, _, port = host_port.partition(":")
        login = self._login(name, {"User": user, "Port": port, "ProxyJump": ",".join(before)}, hops, abandoned)
        host = self._jump_hosts.setdefault(",".join(path), JumpHost(name))
        return Jumped(name, JumpLogin(host, login), connection.host, connection.port)

    def _known(self, files: tuple[Path, ...]) -> KnownHosts:
        if files not in self._known_hosts:
            self._known_hosts[files] = KnownHosts(files)
        return self._known_hosts[files]

    def _checking(self, configured: str) -> str:
        accept_new = self._settings.get("accept_new_host_keys", "") == "yes"
        return "accept-new" if accept_new and configured == "yes" else configured
