"""What Slurm's scripts record: lines in syslog, and files that a prolog or epilog reads instead of asking slurmctld.

A health check writes them: whether another node may be drained; and which checks cannot be evaluated here: for as long
as that is so, no node that was drained is resumed.
"""

from __future__ import annotations

import sys
import time
from _socket import AF_UNIX, SOCK_DGRAM, socket  # without the enumerations that socket.py makes of its constants

from clusterproof.integrations.slurm.folder import age_of
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import CheckRun
from clusterproof.plugins.core.record import record

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

LISTENER = "/dev/log"
DAEMON = 3 << 3
CRITICAL, ERROR, WARNING, INFO = 2, 3, 4, 6
MAX_LINE = 900  # characters; syslog's own limit is 1024 bytes
TIMEOUT_S = 0.5
NAME = "clusterproof"


class Log:
    """The syslog of one call; each line names the script and the job. A syslog that hangs is waited for once."""

    def __init__(self, about: str, listener: str = LISTENER) -> None:
        self.about = about
        self._listener = listener

    def __call__(self, text: str, level: int = INFO) -> None:
        """Log one line."""
        line = f"{self.about}: {' '.join(text.split())}"[:MAX_LINE]
        if not self._sent(f"<{DAEMON | level}>{NAME}: {line}"):
            print(f"{NAME}: {line}", file=sys.stderr, flush=True)  # noqa: T201

    def _sent(self, line: str) -> bool:
        if not self._listener:
            return False
        try:
            sender = socket(AF_UNIX, SOCK_DGRAM)
            try:
                sender.settimeout(TIMEOUT_S)  # its queue may be full for a moment: Linux lets ten lines wait
                sender.connect(self._listener)
                sender.send(line.encode("utf-8", "replace"))
            finally:
                sender.close()
        except OSError:
            self._listener = ""
            return False
        return True


DRAIN_BUDGET = "drain_budget"
FORMER_DRAIN_BUDGET = "room"  # what the version before called it, and calls it again after a rollback
VALID_S = 3600.0  # for so long it is valid; a health check is due far more often
NOBODY_SAYS = "no health check has said on this node how many nodes are drained"
UNEVALUATED = "gaps"


@record
class DrainBudget:
    """The drain budget as the last health check found it: the partition without any left, and its number of nodes.

    The age is None where it was before this boot.
    """

    age_s: float | None
    full: str
    nodes: int


def drain_budget_of(state: State) -> DrainBudget | None:
    """What was left last, in this boot if any was; None where nothing was that can be read."""
    left = [budget for name in (DRAIN_BUDGET, FORMER_DRAIN_BUDGET) if (budget := _budget(state.read(name)))]
    return min(left, key=lambda budget: (budget.age_s is None, budget.age_s or 0.0), default=None)


def _budget(record: Mapping[str, Any]) -> DrainBudget | None:
    full, nodes = record.get("full"), record.get("nodes")
    if not isinstance(full, str) or type(nodes) is not int:
        return None
    if "boot_id" not in record:
        return DrainBudget(_age_by_clock(record.get("at")), full, nodes)
    return DrainBudget(age_of(record["boot_id"], record.get("at")), full, nodes)


def _age_by_clock(at: object) -> float | None:
    """As long ago as a version had it that kept seconds since 1970: after an upgrade, until the next health check."""
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= time.time() - at <= VALID_S:
        return None
    return time.time() - at


def why_no_drain(state: State) -> str:
    """Why a prolog drains nothing more, in words; empty where the last health check found room.

    Where it is not known how many are drained, there is none: nothing would then stop a mistake from draining all.
    """
    budget = drain_budget_of(state)
    if budget is None:
        return NOBODY_SAYS
    if budget.age_s is None:
        return f"{NOBODY_SAYS} since it was booted"
    if budget.age_s > VALID_S:
        return f"{NOBODY_SAYS} within {VALID_S / 60:.0f} minutes"
    return f"{budget.full} (by the health check of {budget.age_s:.0f} s ago)" if budget.full else ""


def log_unevaluated(state: State, run: CheckRun, log: Callable[[str, int], None]) -> Mapping[str, Sequence[str]] | None:
    """Log which checks were incomplete in this health check and in the one before: once, and not every few minutes.

    The record to keep of it, None where that has not changed.
    """
    last = state.read(UNEVALUATED)
    now = {finding.check for finding in run.of("incomplete")}
    unevaluated = now & _checks(last.get("checks"))
    reported = _checks(last.get("reported")) & now
    if unevaluated - reported:
        log(
            "a node that is drained stays so, until an administrator resumes it: "
            f"{', '.join(sorted(unevaluated))} could not be evaluated, twice; expected a verdict of each "
            "(clusterproof-prolog --check-installation)",
            WARNING,
        )
    new = {"checks": sorted(now), "reported": sorted(unevaluated | reported)}
    return new if new != last else None


def why_it_stays(state: State) -> str:
    """Why a node that is drained now would stay so whatever is fixed; empty where a health check will resume it."""
    last = state.read(UNEVALUATED)
    if not last:
        return "no health check has run here in drain mode"
    unevaluated = _checks(last.get("reported"))
    return f"the health checks cannot evaluate {', '.join(sorted(unevaluated))}" if unevaluated else ""


def _checks(names: Any) -> set[str]:
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
