"""What share of its time a rank spends on parts of its steps: waiting for data, checkpoints, the start."""

from __future__ import annotations

from clusterproof.plugins.core.record import record
from clusterproof.plugins.training_run.pace import steady
from clusterproof.plugins.training_run.part_kinds import kind_of
from clusterproof.plugins.training_run.run_data import RunData


@record
class Share:
    """The part of a rank's time that goes into something: seconds, of how many, in how many steps."""

    rank: int
    seconds: float
    of: float
    steps: int
    times: int  # steps in which it took any time

    @property
    def share(self) -> float:
        """The share, from 0 to 1."""
        return self.seconds / self.of if self.of else 0.0


def shares(data: RunData, kind: str, *, is_steady: bool) -> list[Share]:
    """Of each rank that timed parts of this kind, the largest share first; `is_steady` leaves the warm-up out."""
    parts: dict[int, list[str]] = {}
    for rank, name in data.parts:
        if kind_of(name) == kind:
            parts.setdefault(rank, []).append(name)
    found = []
    for rank, names in parts.items():
        lasted = data.steps[rank]
        chosen = steady(lasted) if is_steady else list(lasted)
        of_step = {step: sum(data.parts[rank, name].get(step, (0.0, 0))[0] for name in names) for step in chosen}
        total = sum(max(lasted[step][0], of_step[step]) for step in chosen)
        times = sum(seconds > 0 for seconds in of_step.values())
        found.append(Share(rank, sum(of_step.values()), total, len(chosen), times))
    return sorted(found, key=lambda share: -share.share)
