"""What a law finds: how much it tried, and the findings that were no longer said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.core.result import Finding
from tests.laws.findings import in_line

COLUMNS = ("check", "fault", "beside", "finding", "instead")


@dataclass(frozen=True)
class Loss:
    """A finding that is no longer said, beside what it was lost, and what is said instead; `reason` names a row."""

    check: str
    fault: str
    beside: str
    finding: str
    instead: str
    reason: str = ""


@dataclass(frozen=True)
class Tried:
    """How much a law tried, and what was lost by it."""

    count: int
    losses: tuple[Loss, ...] = ()

    def hidden(self) -> list[Loss]:
        """What no row explains, in the order of checks."""
        found = [loss for loss in self.losses if not loss.reason]
        return sorted(found, key=lambda loss: (loss.check, loss.fault, loss.beside))

    def trials(self, losses: Iterable[Loss]) -> int:
        """In how many of the trials these were lost."""
        return len({(loss.check, loss.fault, loss.beside) for loss in losses})

    @property
    def needed(self) -> int:
        """How many trials lost only what rows explain."""
        return self.trials(self.losses) - self.trials(self.hidden())


def together(tried: Iterable[Tried]) -> Tried:
    """All of them as one."""
    tried = list(tried)
    return Tried(sum(one.count for one in tried), tuple(loss for one in tried for loss in one.losses))


def instead(after: Iterable[Finding]) -> str:
    """What is said instead, worst first; at most four lines of it."""
    said = dict.fromkeys(in_line(one) for one in sorted(after, key=lambda one: one.verdict.rank))
    return " | ".join([*said][:4])


def write(path: Path, losses: Iterable[Loss]) -> None:
    """Write them as a table with a tab between its columns."""
    rows = [COLUMNS, *((loss.check, loss.fault, loss.beside, loss.finding, loss.instead) for loss in losses)]
    lines = ("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")
