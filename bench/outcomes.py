"""Conclusions about cases with known causes, compared with the right ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from clusterproof.plugins.catalog.causes import CAUSES, HARDWARE, UNKNOWN
from clusterproof.plugins.core.record import record


@record
class Outcome:
    """The conclusion about one case."""

    name: str
    story: str
    expected: str
    said: str
    blamed: tuple[str, ...]
    guilty: str
    kept: str

    @property
    def innocent(self) -> tuple[str, ...]:
        """The nodes that were wrongly blamed for their hardware."""
        return tuple(node for node in self.blamed if self.said == HARDWARE and node != self.guilty)

    @property
    def is_right(self) -> bool:
        """Whether the cause is right, and for hardware also the node."""
        return self.said == self.expected and (self.said != HARDWARE or self.blamed == (self.guilty,))


def table(outcomes: Sequence[Outcome]) -> str:
    """The confusion table: a row for each label, a column for each verdict."""
    counts = Counter((outcome.expected, outcome.said) for outcome in outcomes)
    rows = [f"{'label':<10}" + "".join(f"{cause:>10}" for cause in CAUSES)]
    for expected in CAUSES:
        rows.append(f"{expected:<10}" + "".join(f"{counts[expected, cause] or '.':>10}" for cause in CAUSES))
    return "\n".join(rows)


def figures(outcomes: Iterable[Outcome]) -> dict[str, float | int]:
    """Precision and recall for hardware, and the errors other than *unknown*."""
    outcomes = list(outcomes)
    blamed = [outcome for outcome in outcomes if outcome.said == HARDWARE]
    guilty = [outcome for outcome in outcomes if outcome.expected == HARDWARE]
    right = [outcome for outcome in blamed if outcome.is_right]
    wrong = [outcome for outcome in outcomes if outcome.said not in (outcome.expected, UNKNOWN)]
    return {
        "cases": len(outcomes),
        "right": sum(outcome.is_right for outcome in outcomes),
        "hardware_precision": round(len(right) / len(blamed), 4) if blamed else 1.0,
        "hardware_recall": round(len(right) / len(guilty), 4) if guilty else 1.0,
        "wrong_and_not_unknown": len(wrong),
        "innocent_nodes_blamed": sum(len(outcome.innocent) for outcome in outcomes),
    }
