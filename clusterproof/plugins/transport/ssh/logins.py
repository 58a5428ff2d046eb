"""Creates a run's logins from a target, the run's settings, and ssh_config as OpenSSH reads it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from fabric import Config, Connection
from paramiko import SSHException

from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.nodeset import is_address, is_user
from clusterproof.plugins.transport.ssh import Direct, Jumped, NoRoute, Proxied, Route
from clusterproof.plugins.transport.ssh.host_keys import HostIdentity, KnownHosts
from clusterproof.plugins.transport.ssh.identities import Identities
from clusterproof.plugins.transport.ssh.login import JumpHost, JumpLogin, Login, LoginState
from clusterproof.plugins.transport.ssh.ssh_config import (
    SshConfig,
    host_key_checking,
    jumps,
    known_hosts_files,
    parts_of_hop,
    proxy_command,
)

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
        user = connection.user or ""  # of a local user without a name, as in a container
        if not is_address(host) or not is_user(user):
            raise NoRoute(f"{user!r:.60} at {host!r:.80}: expected a log-in name and a host name")
        identity = HostIdentity(
            known=self._known(known_hosts_files(options, self._settings.get("known_hosts", ""))),
            host=host,
            port=port,
            alias=options.get("hostkeyalias", ""),
            checking=self._checking(host_key_checking(options)),
        )
        offer = self._identities.offer(user, options, self._connect_s)
        route = self._route(name, connection, hops, state)
        return Login(connection, route, identity, offer, self._connect_s, state)

    def _connection(self, name: str, lines: Mapping[str, str]) -> Connection:
        """A Fabric connection for `name`; `lines` of ssh_config override the files."""
        if not all(value.isprintable() for value in lines.values()):
            raise NoRoute(f"{name}: {dict(lines)!r:.200}: expected no control characters")
        outranking = "".join(f"{key} {value}\n" for key, value in lines.items() if value)
        ssh_config = self._ssh_config.for_host(name, outranking)
        try:
            return Connection(
                name,
                # No fabric.yaml; and its own: a shared one is written to while other threads read it.
                config=Config(lazy=True, ssh_config=ssh_config),
                gateway=False,
                forward_agent=False,
                connect_timeout=1,  # else ssh_config's; the login sets its own
                connect_kwargs={"look_for_keys": False},  # an empty dict would be ignored; the login sets its own
            )
        except (ValueError, SSHException) as problem:
            raise NoRoute(f"the ssh configuration of {name}: {problem}") from None
        except OSError as problem:  # since Python 3.13, of a local user without a name
            raise NoRoute(f"{name}: {problem}; expected USER to name the local user") from None

    def _route(self, name: str, connection: Connection, hops: int, state: LoginState) -> Route:
        path = [hop for hop in jumps(connection.ssh_config) if not _is_itself(hop, name, connection)]
        if path:
            if hops >= _MAX_JUMPS:
                raise NoRoute(f"the ProxyJump of {name} passes more than {_MAX_JUMPS} hosts; expected an end")
            return self._jumped(path, connection, hops + 1, state)
        command = proxy_command(connection.ssh_config)
        return Proxied(command) if command else Direct(connection.host, connection.port, state.resolving)

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


def _is_itself(hop: str, name: str, connection: Connection) -> bool:
    """Whether a jump host is the host itself, as where `Host *` names one; OpenSSH refuses that. Raises NoRoute."""
    user, host, port = parts_of_hop(hop)
    return host == name and user in ("", connection.user) and port in ("", str(connection.port))
