"""Where a finding goes: from the marks and words of a check to its owner, its remedy and how to see it by hand."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from clusterproof.plugins.catalog import owners

SUBSYSTEMS = ("node", "gpu", "neuron", "network", "host", "storage", "software", "control_plane")
OCCASIONS = ("preflight", "prolog", "epilog", "ami", "perf")

F = TypeVar("F", bound=Callable[..., Any])


def evidence(command: str) -> Callable[[F], F]:
    """Say with which command a person sees the same by hand, on the node."""

    def attach(function: F) -> F:
        function.__evidence__ = command  # type: ignore[attr-defined]
        return function

    return attach


@dataclass(frozen=True, slots=True)
class Route:
    """What reports say of a check, whatever its verdict."""

    check: str
    title: str
    meaning: str
    remedy: str
    evidence: str
    owner: str
    section: str
    subsystem: str


def route(function: Callable[..., Any], marks: Iterable[pytest.Mark]) -> Route:
    """The route of a check. A third party's check needs none of the marks: what is not said stays empty."""
    marks = list(marks)
    owner = next((mark for mark in marks if mark.name in owners()), None)
    subsystem = next((mark.name for mark in marks if mark.name in SUBSYSTEMS), "")
    title, meaning, remedy = words(function)
    name = function.__name__.removeprefix("test_")
    return Route(
        check=f"{subsystem}.{name}" if subsystem else name,
        title=title or name.replace("_", " "),
        meaning=meaning,
        remedy=remedy,
        evidence=getattr(function, "__evidence__", ""),
        owner=owner.name.replace("_", "-") if owner else "",
        section=str(owner.args[0]) if owner and owner.args else "",
        subsystem=subsystem,
    )


def words(function: Callable[..., Any]) -> tuple[str, str, str]:
    """A check's docstring as title (first line), meaning, and remedy (the paragraph that begins `Remedy:`)."""
    paragraphs = [" ".join(block.split()) for block in re.split(r"\n\s*\n", inspect.getdoc(function) or "")]
    title, *rest = paragraphs
    remedy = next((block.removeprefix("Remedy:").strip() for block in rest if block.startswith("Remedy:")), "")
    meaning = " ".join(block for block in rest if not block.startswith("Remedy:"))
    return title.rstrip("."), meaning, remedy
