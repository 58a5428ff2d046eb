"""What changed since the last run of the history, for the forms of report."""

from __future__ import annotations

from dataclasses import dataclass

from clusterproof.reports.history.changes import Changes, headline, since_last
from clusterproof.reports.history.words import folded, moment
from clusterproof.reports.run import Run


@dataclass(frozen=True, slots=True)
class Since:
    """Against the run before: when that was, and what is new, still there and gone."""

    began: float
    changes: Changes

    @property
    def title(self) -> str:
        """`Since the last run (2026-03-02 08:00 UTC)`."""
        return f"Since the last run ({moment(self.began)})"

    @property
    def words(self) -> str:
        """The title, and the headline."""
        return f"{self.title}: {headline(self.changes)}"

    def lines(self, *kinds: str) -> list[str]:
        """A line for each check of these kinds, its nodes folded: `new gpu003: fail: Active NVLinks (…)`."""
        data = [line for kind, found in self.changes.kinds if kind in kinds for line in folded(kind, found)]
        return [" ".join(line.split()) for line in data]


def since(run: Run) -> Since | None:
    """What changed; None where the history has no run before it, or there is none."""
    return None if run.last_began is None else Since(run.last_began, since_last(run.results, run.before))
