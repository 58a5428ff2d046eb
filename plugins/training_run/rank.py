"""One rank of a training run, beside its peers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from clusterproof.plugins.core.record import record
from clusterproof.plugins.core.verdict import Incomplete
from clusterproof.plugins.training_run.pace import LEAST_PEERS, LEAST_STEPS, Pace
from clusterproof.plugins.training_run.records import Place

if TYPE_CHECKING:
    from clusterproof.plugins.training_run.run import TrainingRun


@record
class RankOfRun:
    """One rank of a run."""

    place: Place
    run: TrainingRun

    @property
    def label(self) -> str:
        """`rank 12`."""
        return f"rank {self.place.rank}"

    def threshold(self, name: str) -> float:
        """The same of its run."""
        return self.run.threshold(name)

    @property
    def pace(self) -> Pace:
        """How long it computes beside its peers. Raises Incomplete."""
        pace = self.run.paces.get(self.place.rank)
        peers = pace.peers + 1 if pace else sizes_of_stages(self.run.computed)[self.place.stage]
        if peers < LEAST_PEERS:
            raise Incomplete(f"{peers} ranks in its stage; expected at least {LEAST_PEERS}: trace more of them")
        if pace is None or pace.steps < LEAST_STEPS:
            steps = pace.steps if pace else 0
            raise Incomplete(
                f"{steps} steps in common with its peers; expected at least {LEAST_STEPS}: trace more of them"
            )
        return pace


def sizes_of_stages(found: Iterable[Place]) -> dict[int, int]:
    """How many ranks each stage has."""
    sizes: dict[int, int] = {}
    for place in found:
        sizes[place.stage] = sizes.get(place.stage, 0) + 1
    return sizes
