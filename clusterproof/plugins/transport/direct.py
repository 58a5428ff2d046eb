"""Connections that need no other: to this machine, over SSH, through AWS Systems Manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterproof.plugins.transport import Connection


def _local() -> Connection:
    from clusterproof.plugins.transport.local import Local

    return Local()


def _ssh() -> Connection:
    from clusterproof.plugins.transport.ssh import Ssh  # and with it paramiko and Fabric: 0.3 s

    return Ssh()


def _hyperpod() -> Connection:
    from clusterproof.plugins.transport.hyperpod import Hyperpod

    return Hyperpod()


def _ssm() -> Connection:
    from clusterproof.plugins.transport.ssm import Ssm

    return Ssm()


DIRECT: Mapping[str, Callable[[], Connection]] = {"local": _local, "ssh": _ssh, "hyperpod": _hyperpod, "ssm": _ssm}
