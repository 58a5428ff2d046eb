"""Our drains that a node remembers: a record for each script that drained, so that none hides another.

A record says which checks failed on which occasion: they are evaluated again, by the rules of that occasion, before the
node is resumed. All reasons that may have been given to Slurm are ours; any other is an administrator's.
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
IN_USE = "in_use"  # the record of a reason that Slurm still shows although the node is in use again
LOOKED_AT = "looked_at"  # the record of how far the kernel log was evaluated for drains that an administrator ended
EXPLAIN_S = 60.0  # for Slurm to drain a node for a failed script, and for an administrator to resume it


@record
class Drain:
    """One script's drain: its findings, occasion, reason, and the part of the kernel log that it evaluated.

    It was `at` so many seconds since the boot with that id. `is_reported` is whether Slurm has the reason; `is_claim`
    whether the node was drained before checking that the limit is respected.
    """

    occasion: str
    job: str
    findings: tuple[CheckFinding, ...]
    reason: str
    begins: Cursor | None
    at: float
    is_reported: bool = False
    is_claim: bool = False
    uid: str = ""  # of the job's user
    ends: Cursor | None = None
    boot_id: str = ""

    @property
    def name(self) -> str:
        """The name of its record."""
        return f"{FOLDER}/{self.occasion}-{self.job}" if self.job else f"{FOLDER}/{self.occasion}"

    def is_still_found(self, run: CheckRun) -> bool:
        """Whether a run on its occasion still has a finding that drains: for an epilog, what its job has left."""
        return bool(draining(run, Job(self.job, self.uid), is_epilog=self.occasion == "epilog"))

    @property
    def is_young(self) -> bool:
        """Whether it was so recently that Slurm may not have acted on it yet."""
        age_s = age_of(self.boot_id, self.at)
        return age_s is not None and age_s <= EXPLAIN_S

    @property
    def is_pending(self) -> bool:
        """Whether Slurm may still drain the node for it, as far as time tells."""
        return not self.is_reported and self.is_young

    def to_json(self) -> dict[str, Any]:
        """The record for `drain_of`, also of any earlier version after a rollback."""
        rows = [{key: getattr(finding, key) for key in WORDS} for finding in self.findings]
        record: dict[str, Any] = {**as_json(self), "findings": rows}
        return record


def drain_of(record: Mapping[str, Any]) -> Drain | None:
    """The drain in a record; None if it has none."""
    reason, at, findings = record.get("reason"), record.get("at"), findings_of(record.get("findings"))
    if not isinstance(reason, str) or not reason.startswith(PREFIX) or not isinstance(at, (int, float)):
        return None
    occasion, job, uid = (str(record.get(key, "")) for key in ("occasion", "job", "uid"))
    if findings is None or "/" in occasion + job:
        return None
    is_reported = bool(record.get("is_reported", record.get("is_told")))  # name in records of an earlier version
    is_claim = bool(record.get("is_claim"))
    begins, ends = cursor_of(record.get("begins")), cursor_of(record.get("ends"))
    boot = str(record.get("boot_id", ""))
    return Drain(occasion, job, findings, reason, begins, float(at), is_reported, is_claim, uid, ends, boot)


def remembered_drains(state: State) -> tuple[Drain, ...]:
    """All remembered drains."""
    drains = (drain_of(state.read(name)) for name in state.names(FOLDER))
    return tuple(drain for drain in drains if drain)


def remember(state: State, drain: Drain) -> None:
    """Remember a drain. Raises OSError."""
    state.write(drain.name, drain.to_json())


def update_remembered(state: State, drain: Drain) -> None:
    """Update a drain, unless it was forgotten meanwhile because its node was resumed. Raises OSError."""
    with state.locked(f"{FOLDER}.lock"):
        if state.read(drain.name) or not state.has(FOLDER):
            remember(state, drain)


def release(state: State, drains: Iterable[Drain]) -> None:
    """Forget drains."""
    with state.locked(f"{FOLDER}.lock"):
        for drain in drains:
            state.forget(drain.name)


def taken_back(state: State, drains: Iterable[Drain]) -> dict[str, Cursor]:
    """How far the kernel log counts as seen for each check, now that these drains were ended too.

    For several jobs with the same fault, Slurm has only one reason; the administrator has looked at it for all.
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
    """A drain, limited to what was logged since an administrator looked at its findings in the kernel log.

    If everything was seen, nothing is evaluated for this drain again: other findings until then have drained the node
    themselves.
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
    """Where to evaluate the kernel log from, for a job that began there: parts seen by an administrator are skipped.

    So are parts whose drain has a reason in Slurm: the node is drained for it, or was resumed since.
    """
    looked = map(cursor_of, state.read(LOOKED_AT).values())
    drained_for = (drain.ends for drain in drains if drain.is_reported and not drain.is_claim)
    now = boot_id()
    of_this_boot = [cursor for cursor in (*looked, *drained_for, begins) if cursor and cursor[0] == now]
    return max(of_this_boot, key=lambda cursor: cursor[1:], default=begins)


def begin_of(drains: Iterable[Drain]) -> Cursor | None:
    """The earliest position from which any of them evaluated the kernel log; None: this boot's beginning."""
    cursors = [drain.begins for drain in drains]
    known = [cursor for cursor in cursors if cursor]
    if len(known) < len(cursors) or len({cursor[0] for cursor in known}) != 1:
        return None
    return min(known, key=lambda cursor: cursor[1:])


def is_ours(node: NodeState, drains: Iterable[Drain]) -> bool:
    """Whether a node is drained for one of these reasons."""
    return node.is_drained and node.reason in {drain.reason for drain in drains}


def is_unexplained(node: NodeState, in_use: str, slurm_user: Callable[[], str]) -> bool:
    """Whether Slurm has drained a node for a failed script, with only its generic reason.

    Either in its own words, or with a reason that the node kept while it took jobs (`in_use`, with its date): Slurm
    drains it and leaves an existing reason unchanged.
    """
    if node.is_drained and in_use and node.stamped_reason == in_use:
        return True
    return node.has_slurms_reason and node.by == slurm_user()


def unexplained(
    drains: Iterable[Drain], requested: Drain | None = None, jobs: frozenset[str] | None = None
) -> Drain | None:
    """Of the drains not reported to Slurm, the one whose reason to give: `requested`, else the last.

    Preferably one whose job is not among Slurm's current `jobs`: it may still drain for these again.
    """
    unreported = [drain for drain in drains if not drain.is_reported]
    over = [drain for drain in unreported if jobs is not None and drain.job not in jobs]
    mine = [drain for drain in over or unreported if requested and drain.name == requested.name]
    now = boot_id()
    return max(mine or over or unreported, key=lambda drain: (drain.boot_id == now, drain.at), default=None)
