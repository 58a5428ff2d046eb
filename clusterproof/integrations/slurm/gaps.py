"""What no health check can evaluate on this node: for as long as that is so, no node that was drained is resumed."""

from __future__ import annotations

from clusterproof.integrations.slurm.log import WARNING
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import Run

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RECORD = "gaps"


def log_gaps(state: State, run: Run, log: Callable[[str, int], None]) -> dict[str, object] | None:
    """Log which checks were incomplete in this health check and in the one before: once, and not every few minutes.

    The record to keep of it, None where that has not changed.
    """
    record = state.read(RECORD)
    now = {finding.check for finding in run.of("incomplete")}
    standing = now & _checks(record.get("checks"))
    data = _checks(record.get("reported")) & now
    if standing - data:
        log(
            f"a node that is drained stays so, until an administrator resumes it: {', '.join(sorted(standing))} could "
            "not be evaluated, twice; expected a verdict of each (clusterproof-prolog --check-installation)",
            WARNING,
        )
    new: dict[str, object] = {"checks": sorted(now), "reported": sorted(standing | data)}
    return new if new != record else None


def why_it_stays(state: State) -> str:
    """Why a node that is drained now would stay so whatever is fixed; empty where a health check will resume it."""
    record = state.read(RECORD)
    if not record:
        return "no health check has run here in drain mode"
    standing = _checks(record.get("reported"))
    return f"the health checks cannot evaluate {', '.join(sorted(standing))}" if standing else ""


def _checks(data: Any) -> set[str]:
    return {name for name in data if isinstance(name, str)} if isinstance(data, list) else set()
