"""What no health check can judge on this node: for as long as that is so, no node that was drained is resumed."""

from __future__ import annotations

from clusterproof.integrations.slurm.log import WARNING
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import Run

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

    from clusterproof.integrations.slurm.call import Call

RECORD = "gaps"


def tell_gaps(call: Call, run: Run) -> None:
    """Log which checks were incomplete in this health check and in the one before: once, and not every few minutes."""
    if not (call.settings.drains and call.settings.health_check.resume):
        return
    record = call.state.read(RECORD)
    now = {finding.check for finding in run.of("incomplete")}
    standing = now & _checks(record.get("checks"))
    data = _checks(record.get("told")) & now
    if standing - data:
        call.log(
            f"a node that is drained stays so, until an administrator resumes it: {', '.join(sorted(standing))} could "
            "not be judged, twice; expected a verdict of each (clusterproof-prolog --check-installation)",
            WARNING,
        )
    new: dict[str, object] = {"checks": sorted(now), "told": sorted(standing | data)}
    if new != record:
        call.remember(RECORD, new)


def why_it_stays(state: State) -> str:
    """Why a node that is drained now would stay so whatever is mended; empty where a health check will resume it."""
    record = state.read(RECORD)
    if not record:
        return "no health check has run here in drain mode"
    standing = _checks(record.get("told"))
    return f"the health checks cannot judge {', '.join(sorted(standing))}" if standing else ""


def _checks(data: Any) -> set[str]:
    return {name for name in data if isinstance(name, str)} if isinstance(data, list) else set()
