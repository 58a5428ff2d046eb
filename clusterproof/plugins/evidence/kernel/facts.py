"""The kernel that runs, those that are installed, and its clock."""

from __future__ import annotations

import re
from collections.abc import Iterable

from clusterproof.plugins.core.record import record
from clusterproof.plugins.evidence.field import Field, Reported, flag, number, one, text, texts

NUMBERS = re.compile(r"[0-9._+~-]*")  # 6.8.0-1021- of 6.8.0-1021-aws
FLAVOUR = re.compile(r"[a-z]+")
MAX_DIGITS = 18


@record
class Clock(Reported):
    """How far the clock may be off; the kernel lets it grow until somebody corrects the clock."""

    max_error_s = Field(number)
    synchronised = Field(flag)


@record
class Kernel(Reported):
    """The kernel; `clocksource` is empty where it has none to choose."""

    running = Field(text)
    with_modules = Field(texts, "modules")
    images = Field(texts)
    reboot_required = Field(flag)
    reboot_packages = Field(texts)
    leaves_marker = Field(flag)
    clocksource = Field(text)
    clocksources = Field(text)
    clock = Field(one(Clock))


def newer(running: str, installed: Iterable[str]) -> str:
    """The newest installed kernel of the same flavour (aws, generic, el9, …), empty where none is newer."""
    alike = [version for version in installed if _flavour(version) == _flavour(running)]
    newest = max(alike, key=_numbers, default=running)
    return newest if _numbers(newest) > _numbers(running) else ""


def _numbers(version: str) -> tuple[int, ...]:
    found = NUMBERS.match(version)
    return tuple(int(word) for word in re.findall(f"[0-9]{{1,{MAX_DIGITS}}}", found[0])) if found else ()


def _flavour(version: str) -> tuple[str, ...]:
    return tuple(FLAVOUR.findall(version.lower()))
