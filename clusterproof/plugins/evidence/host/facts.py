"""The host according to /proc and systemd; running and installed kernels, and the clock."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.catalog.node import waits_for
from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.typed import TYPE_CHECKING
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.evidence.field import (
    Field,
    Reported,
    boolean,
    integer,
    number,
    object_as,
    optional,
    output,
    read,
    table,
    text,
    texts,
    word,
)

if TYPE_CHECKING:
    from clusterproof.plugins.evidence.node import Node

NUMBERS = Pattern(r"[0-9._+~-]*")  # 6.8.0-1021- of 6.8.0-1021-aws
FLAVOUR = Pattern(r"[a-z]+")
MAX_DIGITS = 18


@record
class Boot(Reported):
    """The running system."""

    uptime_s = Field(number)
    now = Field(number)
    boot_id = Field(optional(text))  # None in captures that do not show it
    hostname = Field(text)
    kernel = Field(text)
    os = Field(text)  # the distribution and its release, as /etc/os-release words them
    memory_kib = Field(integer)
    cpus = Field(integer)

    @property
    def booted(self) -> float:
        """When it booted by its own clock, in seconds since 1970. Raises Incomplete."""
        return self.now - self.uptime_s


def has_just_booted(node: Node) -> bool:
    """Whether the node is too recently booted for counts to be complete; false without a known uptime."""
    try:
        return node.boot.uptime_s < node.threshold("settle.window_s")
    except Incomplete:
        return False


@record
class Platform(Reported):
    """The machine according to its firmware; unknown values are empty."""

    vendor = Field(text)
    product = Field(text)
    board = Field(optional(text))
    bios = Field(optional(text))  # its version; of UEFI likewise
    bmc = Field(optional(text))  # the version of its firmware; evidence of earlier versions lacks it


@record
class BlockedProcess(Reported):
    """A process in uninterruptible sleep (D) in both passes; `blocked_s` is None if the kernel does not report it."""

    pid = Field(integer)
    name = Field(word)
    wait = Field(text)
    stack = Field(optional(texts))  # the kernel's functions, innermost first; only root may read them
    blocked_s = Field(optional(number))
    age_s = Field(number)

    @property
    def waits_for(self) -> str:
        """`driver`, `file_system`, `user` (resources that users can hold) or `shared`; empty if unknown."""
        return waits_for((self.wait, *(self.stack or ())))


@record
class Service(Reported):
    """A relevant systemd unit."""

    load = Field(text)
    active = Field(text)
    sub = Field(text)
    enabled = Field(text)
    restarts = Field(optional(integer))  # by systemd itself, since somebody last started it
    active_s = Field(optional(number))  # since it last became active

    @property
    def is_installed(self) -> bool:
        """Whether systemd knows the unit."""
        return self.load != "not-found"

    @property
    def is_running(self) -> bool:
        """Whether it runs or is being started."""
        return self.active in ("active", "activating", "reloading")

    @property
    def is_being_restarted(self) -> bool:
        """Whether it ended, and systemd waits to start it once more."""
        return self.active == "activating" and self.sub.startswith("auto-restart")

    @property
    def is_unhealthy(self) -> bool:
        """Whether it failed, or is enabled but neither runs nor is being started. Raises Incomplete."""
        if self.active == "failed" or self.is_being_restarted:
            return True
        return not self.is_running and self.enabled.startswith("enabled")

    def keeps_ending(self, restarts: float, timeout_s: float) -> bool:
        """Whether systemd has restarted it so often, the last time so recently."""
        return (self.restarts or 0) >= restarts and self.active_s is not None and self.active_s <= timeout_s


@record
class ProcessLimits(Reported):
    """The soft limits of a process that starts jobs, and the CPUs that it may use."""

    cpus = Field(text)  # as `0-47,96-143`; empty where the kernel does not report it

    def soft(self, name: str) -> int | None:
        """The limit by its name in limits.conf, memory in bytes; None is unlimited. Raises Incomplete."""
        limits = read(self.data, table, "limits")
        if name not in limits:
            raise Incomplete(f"the limit {name} was not reported", cause="not reported by the node")
        return read(limits[name], optional(integer), f"limits: {name}")


@record
class Command(Reported):
    """The output of a command, with its exit status."""

    exit = Field(integer)
    output = Field(output)


@record
class Clock(Reported):
    """The possible error of the clock; the kernel increases it until the clock is corrected."""

    max_error_s = Field(number)
    synchronised = Field(boolean)


@record
class Kernel(Reported):
    """The kernel; `clocksource` is empty where it has none to choose."""

    running = Field(text)
    with_modules = Field(texts, "modules")
    images = Field(texts)
    reboot_required = Field(boolean)
    reboot_packages = Field(texts)
    leaves_marker = Field(boolean)
    clocksource = Field(text)
    clocksources = Field(text)
    clock = Field(object_as(Clock))


def newest_installed(running: str, installed: Iterable[str]) -> str:
    """The newest installed kernel of the same flavour (aws, generic, el9, …), empty where none is newer."""
    same_flavour = [version for version in installed if _flavour(version) == _flavour(running)]
    newest = max(same_flavour, key=_numbers, default=running)
    return newest if _numbers(newest) > _numbers(running) else ""


def _numbers(version: str) -> tuple[int, ...]:
    match = NUMBERS.match(version)
    return tuple(int(word) for word in re.findall(f"[0-9]{{1,{MAX_DIGITS}}}", match[0])) if match else ()


def _flavour(version: str) -> tuple[str, ...]:
    return tuple(FLAVOUR.findall(version.lower()))
