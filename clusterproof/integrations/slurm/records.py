"""What Slurm's scripts leave: lines in syslog, and records for prologs and epilogs, which must not query Slurm.

A health check writes them: whether another node may be drained; and which checks cannot be evaluated here: while there
are any, no drained node is resumed.
"""

from __future__ import annotations

import sys
import time
from _socket import AF_UNIX, SOCK_DGRAM, socket  # avoids the enumerations that socket.py creates

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
    """Writes the log lines of one call; each names the script and the job. A hanging syslog is waited for only once."""

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
                sender.settimeout(TIMEOUT_S)  # its queue may be full for a moment: Linux allows ten lines
                sender.connect(self._listener)
                sender.send(line.encode("utf-8", "replace"))
            finally:
                sender.close()
        except OSError:
            self._listener = ""
            return False
        return True


DRAIN_BUDGET = "drain_budget"
FORMER_DRAIN_BUDGET = "room"  # its name in the previous version, needed after a rollback
VALID_S = 3600.0  # maximum age; a health check runs far more often
BUDGET_UNKNOWN = "no health check has said on this node how many nodes are drained"
UNEVALUATED = "gaps"


@record
class DrainBudget:
    """The result of a health check: which partition is full, in words, how many nodes it has, and its age.

    The age is None if it was before this boot.
    """

    age_s: float | None
    full: str
    nodes: int


def drain_budget_of(state: State) -> DrainBudget | None:
    """The last result, preferably of this boot; None if there is no readable one."""
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
    """The age of an earlier version's record, which has seconds since 1970: until the first health check."""
    if isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= time.time() - at <= VALID_S:
        return None
    return time.time() - at


def why_no_drain(state: State) -> str:
    """Why a prolog must not drain, in words; empty if the last health check found room.

    If the number of drained nodes is unknown, there is no room: otherwise a mistake could drain all.
    """
    budget = drain_budget_of(state)
    if budget is None:
        return BUDGET_UNKNOWN
    if budget.age_s is None:
        return f"{BUDGET_UNKNOWN} since it was booted"
    if budget.age_s > VALID_S:
        return f"{BUDGET_UNKNOWN} within {VALID_S / 60:.0f} minutes"
    return f"{budget.full} (by the health check of {budget.age_s:.0f} s ago)" if budget.full else ""


def log_unevaluated(state: State, run: CheckRun, log: Callable[[str, int], None]) -> Mapping[str, Sequence[str]] | None:
    """Log which checks were incomplete in both this health check and the previous one: once, not every few minutes.

    Returns the record to store, None if unchanged.
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


def why_not_resumed(state: State) -> str:
    """Why a node that is drained now would stay so even if fixed; empty if a health check will resume it."""
    last = state.read(UNEVALUATED)
    if not last:
        return "no health check has run here in drain mode"
    unevaluated = _checks(last.get("reported"))
    return f"the health checks cannot evaluate {', '.join(sorted(unevaluated))}" if unevaluated else ""


def _checks(names: Any) -> set[str]:
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
