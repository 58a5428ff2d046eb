"""Where a finding goes: a check's owner, remedy and command to reproduce it, from its marks and docstring."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from clusterproof.plugins.agent.pattern import Pattern
from clusterproof.plugins.catalog import owners
from clusterproof.plugins.core.cluster import INSTANCE_ID
from clusterproof.plugins.core.marks import Mark
from clusterproof.plugins.core.record import record, replace
from clusterproof.plugins.core.result import ACTIONS, SUBSYSTEMS
from clusterproof.plugins.core.typed import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pytest

OCCASIONS = ("preflight", "prolog", "epilog", "job", "ami", "perf")

F = TypeVar("F", bound=Callable[..., Any])


def evidence(command: str) -> Callable[[F], F]:
    """Set the command that shows a person the same on the node."""

    def attach(function: F) -> F:
        function.__evidence__ = command  # type: ignore[attr-defined]
        return function

    return attach


def by_hand(command_of: Callable[[Any], str]) -> Callable[[F], F]:
    """Set a function that returns a different command for this node or pair; empty: the usual one."""

    def attach(function: F) -> F:
        function.__by_hand__ = command_of  # type: ignore[attr-defined]
        return function

    return attach


def remedied_by(remedy_of: Callable[[Any], str]) -> Callable[[F], F]:
    """Set a function that returns a different remedy for this node; empty: the usual one."""

    def attach(function: F) -> F:
        function.__remedied_by__ = remedy_of  # type: ignore[attr-defined]
        return function

    return attach


def over_ssm(owner: str, command: str) -> Callable[[F], F]:
    """Set the owner of the check and the command that shows the same, for nodes reached through Systems Manager."""

    def attach(function: F) -> F:
        function.__over_ssm__ = (owner, command)  # type: ignore[attr-defined]
        return function

    return attach


@record
class Route:
    """What reports state about a check, whatever its verdict."""

    check: str
    title: str
    meaning: str
    action: str
    remedy: str
    evidence: str
    owner: str
    section: str
    subsystem: str
    team: str = ""
    by_hand: Callable[[Any], str] | None = None  # the command, where it depends on how a node or pair was reached
    remedied_by: Callable[[Any], str] | None = None  # the remedy, where it depends on the node
    over_ssm: tuple[str, str] | None = None  # owner and command for a node reached through Systems Manager

    def shown_by(self, owner: Any) -> str:
        """The command that shows the same on this node or pair."""
        return (self.by_hand(owner) if self.by_hand else "") or self.evidence

    def remedy_for(self, owner: Any) -> str:
        """What to do about a finding on this node."""
        return (self.remedied_by(owner) if self.remedied_by else "") or self.remedy

    def to(self, address: str) -> Route:
        """The route for a node at this address."""
        if self.over_ssm is None or not _SSM_TARGET.fullmatch(address):
            return self
        return replace(
            self, owner=self.over_ssm[0], section="", evidence=self.over_ssm[1].replace("TARGET", address), by_hand=None
        )


_SSM_TARGET = Pattern(rf"{INSTANCE_ID}|sagemaker-cluster:\S+")  # an EC2 instance, a HyperPod node


def route(function: Callable[..., Any], marks: Iterable[Mark | pytest.Mark]) -> Route:
    """The route of a check. A third party's check needs no marks: missing values stay empty."""
    marks = list(marks)
    owner = next((mark for mark in marks if mark.name in owners()), None)
    owner_row = owners()[owner.name] if owner else None
    section = str(owner.args[0]) if owner and owner.args else ""
    subsystem = next((mark.name for mark in marks if mark.name in SUBSYSTEMS), "")
    title, meaning, action, remedy = parse_docstring(function)
    name = function.__name__.removeprefix("test_")
    check = f"{subsystem}.{name}" if subsystem else name
    return Route(
        check=check,
        title=title or name.replace("_", " "),
        meaning=meaning,
        action=action,
        remedy=remedy,
        evidence=getattr(function, "__evidence__", ""),
        owner=owner.name.replace("_", "-") if owner else "",
        section=section,
        subsystem=subsystem,
        team=owner_row.team_for(section, action, check) if owner_row else "",
        by_hand=getattr(function, "__by_hand__", None),
        remedied_by=getattr(function, "__remedied_by__", None),
        over_ssm=getattr(function, "__over_ssm__", None),
    )


def parse_docstring(function: Callable[..., Any]) -> tuple[str, str, str, str]:
    """Split a docstring into title (first line), meaning, action and remedy (the paragraph `Remedy (action): …`)."""
    from inspect import getdoc  # a prolog has the texts from the index

    title, *rest = [" ".join(block.split()) for block in re.split(r"\n\s*\n", getdoc(function) or "")]
    match = next(filter(None, map(_REMEDY.fullmatch, rest)), None)
    written, remedy = (match[1] or "", match[2]) if match else ("", "")
    action = written.lower() if written.lower() in ACTIONS else written
    meaning = " ".join(block for block in rest if not _REMEDY.fullmatch(block))
    return title.rstrip("."), meaning, action or ACTIONS[-1], remedy


_REMEDY = Pattern(r"Remedy(?: \(([^()]{1,40})\))?: *(.*)")  # an action may be a site's own, such as RMA


def mark_lines() -> list[str]:
    """Every mark of the suite, as pytest lists marks."""
    skills = [f"{owner.mark}(section): a finding of this check goes to {owner.name}" for owner in owners().values()]
    subsystems = [f"{name}: checks of this subsystem" for name in SUBSYSTEMS]
    occasions = [f"{name}: {_OCCASION_WORDS[name]}" for name in OCCASIONS]
    return [*subsystems, *occasions, *skills]


_OCCASION_WORDS = {
    "preflight": "before a training run",
    "prolog": "before each job, from Slurm",
    "epilog": "after each job, from Slurm",
    "job": "the first line of a job, in its container; runs only when -m names it",
    "ami": "the gate for a new machine image",
    "perf": "loads the hardware; runs only when -m names it",
}
