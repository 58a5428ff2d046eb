"""A law's results: how much it tried, which findings were lost, and the minimum for a run of laws."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.catalog.needs import needs
from clusterproof.plugins.core.result import Finding
from tests.laws import counted, taken
from tests.laws.findings import in_line

COLUMNS = ("check", "fault", "beside", "finding", "instead")


@dataclass(frozen=True)
class Loss:
    """A lost finding, what was removed or added, and the message instead; `reason` names a table row."""

    check: str
    fault: str
    beside: str
    finding: str
    instead: str
    reason: str = ""


@dataclass(frozen=True)
class Tried:
    """How much a law tried, and what was lost."""

    count: int
    losses: tuple[Loss, ...] = ()

    def hidden(self) -> list[Loss]:
        """Losses that no row explains, in the order of checks."""
        hidden = [loss for loss in self.losses if not loss.reason]
        return sorted(hidden, key=lambda loss: (loss.check, loss.fault, loss.beside))

    def trials(self, losses: Iterable[Loss]) -> int:
        """In how many of the trials these were lost."""
        return len({(loss.check, loss.fault, loss.beside) for loss in losses})

    @property
    def needed(self) -> int:
        """How many trials lost only what rows explain."""
        return self.trials(self.losses) - self.trials(self.hidden())


def together(tried: Iterable[Tried]) -> Tried:
    """All of them merged."""
    tried = list(tried)
    return Tried(sum(part.count for part in tried), tuple(loss for part in tried for loss in part.losses))


def instead(after: Iterable[Finding]) -> str:
    """The messages instead, worst first; at most four lines."""
    lines = dict.fromkeys(in_line(finding) for finding in sorted(after, key=lambda finding: finding.verdict.rank))
    return " | ".join([*lines][:4])


def write(path: Path, losses: Iterable[Loss]) -> None:
    """Write them as a tab-separated table."""
    rows = [COLUMNS, *((loss.check, loss.fault, loss.beside, loss.finding, loss.instead) for loss in losses)]
    lines = ("\t".join(" ".join(cell.split()) for cell in row) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


FLOORS = {
    "removal": 12_000,
    "pairs": 45_000,
    "order": 1_800,
    "cut": 50,
    "halves": 30_000,
}  # minimum number of trials of a whole run
MAX_NEEDED = 0.05
ROWS = {"removal": needs(), "pairs": taken.ROWS, "halves": counted.ROWS}


def wrong(tried: Mapping[str, Tried], is_whole: bool) -> Iterator[str]:
    """Problems other than hidden findings; minimum numbers apply to whole runs."""
    for name, law in tried.items():
        if not law.count or (is_whole and law.count < FLOORS[name]):
            yield f"TOO FEW     {name}: {law.count} were tried; expected at least {FLOORS[name] if is_whole else 1}"
        if is_whole:
            unused = [row for row in ROWS.get(name, {}) if row not in {loss.reason for loss in law.losses}]
            yield from (f"NO USE      {name}: row {row!r} explains nothing" for row in unused)
    removals = tried.get("removal", Tried(0))
    if is_whole and removals.needed > MAX_NEEDED * removals.count:
        most = f"{MAX_NEEDED:.0%} of {removals.count}"
        yield f"TOO MANY    removal: {removals.needed} are explained by rows of needs.toml; expected at most {most}"
