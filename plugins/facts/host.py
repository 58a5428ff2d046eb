"""The host as /proc and systemd tell it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clusterproof.plugins.facts.field import Field, flag, number, optional, output, read, table, text, whole
from clusterproof.plugins.verdict import Incomplete


@dataclass(frozen=True, slots=True)
class Boot:
    """The running system."""

    told: Mapping[str, Any]

    uptime_s = Field(number)
    now = Field(number)
    hostname = Field(text)
    kernel = Field(text)
    memory_kib = Field(whole)
    cpus = Field(whole)

    @property
    def booted(self) -> float:
        """When it booted by its own clock, in seconds since 1970. Raises Incomplete."""
        return self.now - self.uptime_s


@dataclass(frozen=True, slots=True)
class Platform:
    """What the firmware says that the machine is; empty where it says nothing."""

    told: Mapping[str, Any]

    vendor = Field(text)
    product = Field(text)


@dataclass(frozen=True, slots=True)
class BlockedProcess:
    """A process seen in uninterruptible sleep (D) at both looks; `blocked_s` is None where the kernel does not tell."""

    told: Mapping[str, Any]

    pid = Field(whole)
    name = Field(text)
    wait = Field(text)
    blocked_s = Field(optional(number))
    age_s = Field(number)


@dataclass(frozen=True, slots=True)
class Service:
    """A systemd unit of those that matter here."""

    told: Mapping[str, Any]

    load = Field(text)
    active = Field(text)
    enabled = Field(text)

    @property
    def is_installed(self) -> bool:
        """Whether systemd knows the unit."""
        return self.load != "not-found"


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """The soft limits of a process that starts jobs."""

    told: Mapping[str, Any]

    def soft(self, name: str) -> int | None:
        """The limit by its name in limits.conf, memory in bytes; None is unlimited. Raises Incomplete."""
        limits = read(self.told, table, "limits")
        if name not in limits:
            raise Incomplete(f"the limit {name} was not told", cause="not told by the node")
        return read(limits[name], optional(whole), f"limits: {name}")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system; sizes are None where it did not answer."""

    told: Mapping[str, Any]

    path = Field(text)
    type = Field(text)
    source = Field(text)
    options = Field(text)
    alive = Field(text)
    total_kib = Field(optional(whole))
    free_kib = Field(optional(whole))
    inodes = Field(optional(whole))
    inodes_free = Field(optional(whole))

    @property
    def label(self) -> str:
        """Where it is mounted."""
        return self.path


@dataclass(frozen=True, slots=True)
class FstabEntry:
    """A line of /etc/fstab; `mounted` is whether anything is mounted there, of whatever type."""

    told: Mapping[str, Any]

    path = Field(text)
    type = Field(text)
    options = Field(text)
    mounted = Field(flag)

    @property
    def is_due(self) -> bool:
        """Whether it is to be mounted at boot."""
        return self.path.startswith("/") and self.type != "swap" and "noauto" not in self.options.split(",")


@dataclass(frozen=True, slots=True)
class Command:
    """What a tool printed, with its exit status."""

    told: Mapping[str, Any]

    exit = Field(whole)
    output = Field(output)
