"""The drains that a node's scripts asked for: a record for each script, so that none hides another.

A record says which checks failed on which occasion: these are evaluated again, by the rule of that occasion, before the
node is resumed. All the reasons that Slurm may have been given are ours; any other is an administrator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from clusterproof.integrations.slurm.folder import age_of, boot_id
from clusterproof.integrations.slurm.job import Job
from clusterproof.integrations.slurm.state import State
from clusterproof.integrations.slurm.verdict import (
    PREFIX,
    WORDS,
    CheckFinding,
    CheckRun,
    Cursor,
    cursor_of,
    draining,
    findings_of,
    later,
)
from clusterproof.plugins.core.record import as_json, record, replace

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from typing import Any

    from clusterproof.integrations.slurm.control import NodeState

FOLDER = "drained"
IN_USE = "in_use"  # the record of a reason that Slurm still shows of a node that it has taken back
LOOKED_AT = "looked_at"  # the record of how far the kernel log was evaluated for drains that an administrator took back
EXPLAIN_S = 60.0  # how long to wait for Slurm to drain a node for a script that failed, and for who resumes it


@record
class Drain:
    """One script's drain: its occasion, its findings, the reason, and the part of the kernel log that it evaluated.

    It was `at` so many seconds since the boot of that id. `is_reported` is whether Slurm has the reason; `is_claim`
    whether the node was drained before it is known that no more than are allowed are.
    """

    occasion: str
    job: str
    findings: tuple[CheckFinding, ...]
    reason: str
    begins: Cursor | None
    at: float
    is_reported: bool = False
    is_claim: bool = False
    uid: str = ""  # of the job
    ends: Cursor | None = None
    boot_id: str = ""

    @property
    def name(self) -> str:
        """The name of its record."""
        return f"{FOLDER}/{self.occasion}-{self.job}" if self.job else f"{FOLDER}/{self.occasion}"

    def is_still_found(self, run: CheckRun) -> bool:
        """Whether a run on its occasion finds what that script would drain for: of an epilog, what its job has left."""
        return bool(draining(run, Job(self.job, self.uid), is_epilog=self.occasion == "epilog"))

    @property
    def is_young(self) -> bool:
        """Whether it was so short a time ago that Slurm may not have come to it yet."""
        age_s = age_of(self.boot_id, self.at)
        return age_s is not None and age_s <= EXPLAIN_S

    @property
    def is_pending(self) -> bool:
        """Whether Slurm may yet drain the node for it, as far as a clock shows."""
        return not self.is_reported and self.is_young

    def to_json(self) -> dict[str, Any]:
        """The record that `drain_of` reads, as does any version that this one may be rolled back to."""
        rows = [{key: getattr(finding, key) for key in WORDS} for finding in self.findings]
        record: dict[str, Any] = {**as_json(self), "findings": rows}
        return record


def drain_of(record: Mapping[str, Any]) -> Drain | None:
    """The drain that a record holds; None where it holds none."""
    reason, at, findings = record.get("reason"), record.get("at"), findings_of(record.get("findings"))
    if not isinstance(reason, str) or not reason.startswith(PREFIX) or not isinstance(at, (int, float)):
        return None
    occasion, job, uid = (str(record.get(key, "")) for key in ("occasion", "job", "uid"))
    if findings is None or "/" in occasion + job:
        return None
    is_reported = bool(record.get("is_reported", record.get("is_told")))  # as a node that was drained before has it
    is_claim = bool(record.get("is_claim"))
    begins, ends = cursor_of(record.get("begins")), cursor_of(record.get("ends"))
    boot = str(record.get("boot_id", ""))
    return Drain(occasion, job, findings, reason, begins, float(at), is_reported, is_claim, uid, ends, boot)


def held(state: State) -> tuple[Drain, ...]:
    """All that are remembered."""
    drains = (drain_of(state.read(name)) for name in state.names(FOLDER))
    return tuple(drain for drain in drains if drain)


def hold(state: State, drain: Drain) -> None:
    """Remember a drain. Raises OSError."""
    state.write(drain.name, drain.to_json())


def hold_still(state: State, drain: Drain) -> None:
    """Remember a drain as it is now, unless it was forgotten meanwhile: its node was taken back. Raises OSError."""
    with state.locked(f"{FOLDER}.lock"):
        if state.read(drain.name) or not state.has(FOLDER):
            hold(state, drain)


def release(state: State, drains: Iterable[Drain]) -> None:
    """Forget drains."""
    with state.locked(f"{FOLDER}.lock"):
        for drain in drains:
            state.forget(drain.name)


def taken_back(state: State, drains: Iterable[Drain]) -> dict[str, Cursor]:
    """How far the kernel log has been looked at for each check, now that these drains have been taken back too.

    Of many jobs that met the same, Slurm gets one's reason; who takes the node back has looked at it for all.
    """
    known = ((check, cursor_of(cursor)) for check, cursor in state.read(LOOKED_AT).items())
    looked = {check: cursor for check, cursor in known if cursor}
    for drain in drains:
        for finding in drain.findings:
            furthest = later(looked.get(finding.check), drain.ends)
            if furthest:
                looked[finding.check] = furthest
    return looked


def since_looked_at(
    drain: Drain, looked: Mapping[str, Cursor], evaluated: Cursor | None, is_of_log: Callable[[str], bool]
) -> Drain:
    """A drain that is evaluated by what was logged since an administrator looked at what it found in the kernel log.

    Where all of that was looked at, nothing of it is evaluated for this drain again: what else was found until then
    has drained the node by itself.
    """
    if not (looked and drain.ends and drain.findings):
        return drain
    cursors = [looked.get(finding.check) for finding in drain.findings if is_of_log(finding.check)]
    known = [cursor for cursor in cursors if cursor and cursor[0] == drain.ends[0]]
    if len(known) < len(cursors):
        return drain
    new = [cursor for cursor in known if cursor[1:] < drain.ends[1:]]
    return replace(drain, begins=min(new, key=lambda cursor: cursor[1:]) if new else later(drain.ends, evaluated))


def begin_after_looks(state: State, begins: Cursor | None, drains: Iterable[Drain] = ()) -> Cursor | None:
    """From where on the kernel log is evaluated after a job that began there: what was looked at meanwhile is not.

    Nor is what Slurm has a reason of, among these drains: the node is drained for it, or somebody has resumed it since.
    """
    looked = map(cursor_of, state.read(LOOKED_AT).values())
    drained_for = (drain.ends for drain in drains if drain.is_reported and not drain.is_claim)
    now = boot_id()
    of_this_boot = [cursor for cursor in (*looked, *drained_for, begins) if cursor and cursor[0] == now]
    return max(of_this_boot, key=lambda cursor: cursor[1:], default=begins)


def begin_of(drains: Iterable[Drain]) -> Cursor | None:
    """From where on the kernel log holds all that any of them was evaluated for; None: from this boot's beginning."""
    cursors = [drain.begins for drain in drains]
    known = [cursor for cursor in cursors if cursor]
    if len(known) < len(cursors) or len({cursor[0] for cursor in known}) != 1:
        return None
    return min(known, key=lambda cursor: cursor[1:])


def is_ours(node: NodeState, drains: Iterable[Drain]) -> bool:
    """Whether a node is drained for a reason of these."""
    return node.is_drained and node.reason in {drain.reason for drain in drains}


def is_unexplained(node: NodeState, in_use: str, slurm_user: Callable[[], str]) -> bool:
    """Whether Slurm has drained a node for a script that failed, and says no more than that.

    Its own words say so, where it has given them itself; and so does a reason that the node had while it took jobs
    (`in_use`, with its date): where there is one, Slurm drains and leaves it as it is.
    """
    if node.is_drained and in_use and node.stamped_reason == in_use:
        return True
    return node.has_slurms_words and node.by == slurm_user()


def unexplained(
    drains: Iterable[Drain], requested: Drain | None = None, jobs: frozenset[str] | None = None
) -> Drain | None:
    """Of the drains without a reason in Slurm yet, the one whose reason a node needs: `requested`, else the last.

    Before those comes one whose job is none of the `jobs` that Slurm still has there: it may drain for these once more.
    """
    unreported = [drain for drain in drains if not drain.is_reported]
    over = [drain for drain in unreported if jobs is not None and drain.job not in jobs]
    mine = [drain for drain in over or unreported if requested and drain.name == requested.name]
    now = boot_id()
    return max(mine or over or unreported, key=lambda drain: (drain.boot_id == now, drain.at), default=None)
