"""What a run of the laws has to reach: enough was tried, few rows explain much, and none explains nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from clusterproof.plugins.catalog.needs import needs
from tests.laws import taken
from tests.laws.losses import Tried

FLOORS = {"removal": 12_000, "pairs": 45_000, "order": 1_800, "cut": 50}  # of a whole run
MOST_NEEDED = 0.05
ROWS = {"removal": needs(), "pairs": taken.ROWS}


def wrong(tried: Mapping[str, Tried], is_whole: bool) -> Iterator[str]:
    """What is wrong besides what is hidden; bars that go by how much was tried are of a whole run."""
    for name, law in tried.items():
        if not law.count or (is_whole and law.count < FLOORS[name]):
            yield f"TOO FEW     {name}: {law.count} were tried; expected at least {FLOORS[name] if is_whole else 1}"
        if is_whole:
            unused = [row for row in ROWS.get(name, {}) if row not in {loss.reason for loss in law.losses}]
            yield from (f"NO USE      {name}: row {row!r} explains nothing" for row in unused)
    removals = tried.get("removal", Tried(0))
    if is_whole and removals.needed > MOST_NEEDED * removals.count:
        most = f"{MOST_NEEDED:.0%} of {removals.count}"
        yield f"TOO MANY    removal: {removals.needed} are explained by rows of needs.toml; expected at most {most}"
