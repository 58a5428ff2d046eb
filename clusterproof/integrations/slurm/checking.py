"""Runs the checks on this machine, in this process.

The index says which checks an occasion has and what they need, so that the probe starts at once, and only the needed
modules are loaded.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping

from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.job import node_of
from clusterproof.integrations.slurm.settings import Settings, distrust_reason
from clusterproof.integrations.slurm.standby import StandBy
from clusterproof.integrations.slurm.verdict import (
    LEAKED,
    LEFT,
    CheckFinding,
    CheckRun,
    Cursor,
    LeftoverOwner,
    cursor_of,
    cut_short,
)
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.core.typed import TypeVar
from clusterproof.plugins.evaluation.index import (
    ALWAYS,
    Stale,
    collectors_of,
    load,
    make_index,
    of_occasions,
    read_index,
)

TYPE_CHECKING = False  # typing's own would cost an import before each job
if TYPE_CHECKING:
    from clusterproof.plugins.core.evidence import NodeEvidence
    from clusterproof.plugins.core.policy import Policy
    from clusterproof.plugins.core.result import Result
    from clusterproof.plugins.evaluation.index import Entry

T = TypeVar("T")
OCCASIONS = {"prolog": ("prolog",), "epilog": ("epilog",), "health-check": ("prolog", "epilog")}  # of each script
COLLECTOR_S = 5.0  # the suite's default deadline of one collector
ASIDE_S = 2.0  # of the deadline, reserved for starting, killing what hangs, and evaluation
NVML = 3  # times the timeout: the longest that any evidence may take


class NoVerdict(Exception):  # noqa: N818 - an outcome, not an error
    """The checks gave no verdict; the message says why."""


def timeout_s(deadline_s: float) -> float:
    """The timeout of one collector that lets all evidence arrive before the deadline."""
    return max(0.1, min(COLLECTOR_S, (deadline_s - ASIDE_S) / NVML))


def check(
    occasions: tuple[str, ...],
    settings: Settings,
    deadline_s: float,
    cursor: Cursor | None,
    say: Callable[[str], object] = str,  # discarded
    report: Callable[[Result], object] = str,  # discarded
    nvml: bytes = b"",
) -> CheckRun:
    """Run the checks of these occasions, and call `report` with each result; `say` gets problems of the suite itself.

    `nvml` is the cached code of the used part of nvidia-ml-py, if any. Raises NoVerdict.
    """
    began = time.monotonic()
    probe = StandBy(nvml)
    collector_s = timeout_s(deadline_s)
    try:
        entries = tuple(of_occasions(_index(say, occasions), occasions).values())
        policy = policy_of(settings, lambda: frozenset(_index(str)))
        probe.begin(collectors_of(entries) | ALWAYS, options_of(collector_s, policy, cursor))
        evaluate = prepared(entries, occasions, settings, policy)
        evidence = _evidence(probe, deadline_s)
    finally:
        probe.end()
    everything = evaluate(evidence)
    for result in everything:
        report(result)
    results = [result for result in everything if result.verdict.value != "not applicable"]
    if not results:
        raise NoVerdict("no check applies")
    findings = findings_in(results, evidence)
    return CheckRun(
        boot_id(),
        since_boot_s(),
        round(time.monotonic() - began, 3),
        len(results),
        tuple(findings if collector_s >= COLLECTOR_S else map(cut_short, findings)),
        cursor,
        _end_of_log(evidence),
    )


def _evidence(probe: StandBy, deadline_s: float) -> NodeEvidence:
    """What the probe read. Raises NoVerdict if nothing came: that a process of ours ended accuses no node."""
    evidence = probe.evidence(node_of(os.environ), deadline_s)
    if evidence.unreached:
        raise NoVerdict(f"the probe gave no evidence: {evidence.detail}")
    return evidence


def _end_of_log(evidence: NodeEvidence) -> Cursor | None:
    """How far the kernel log was read."""
    log = evidence.collectors.get("kernel_log")
    return cursor_of(log.value.get("cursor")) if log and isinstance(log.value, dict) else None


def findings_in(results: Iterable[Result], evidence: NodeEvidence) -> list[CheckFinding]:
    """The results that did not pass; for what jobs have left also its owners, as far as known."""
    owners = owners_in(evidence)
    return [
        CheckFinding(part.check, part.verdict.value, part.message, part.devices, owners.get(part.check, ()))
        for result in results
        for part in result.by_verdict
        if part.verdict.value != "pass"
    ]


def owners_in(evidence: NodeEvidence) -> Mapping[str, tuple[LeftoverOwner, ...]]:
    """The owners of what jobs have left, by the check that reports it."""
    from clusterproof.plugins.evidence.fact import answer_of
    from clusterproof.plugins.evidence.host.facts_node import Jobs

    def jobs() -> Jobs:
        return Jobs(answer_of("jobs", evidence.collectors["jobs"]).value)

    return {
        LEFT: _owners(
            lambda: jobs().left,
            lambda leftover: LeftoverOwner(leftover.job, "" if leftover.is_sure else str(leftover.uid)),
        ),
        LEAKED: _owners(lambda: jobs().shm, lambda leftover: LeftoverOwner(uid=str(leftover.uid))),
    }


def _owners(things: Callable[[], Iterable[T]], owner_of: Callable[[T], LeftoverOwner]) -> tuple[LeftoverOwner, ...]:
    """Each owner once; findings that cannot be read have none."""
    from clusterproof.plugins.core.verdict import Incomplete, NotApplicable

    owners: dict[LeftoverOwner, None] = {}
    with contextlib.suppress(KeyError, Incomplete, NotApplicable):
        for thing in things():
            with contextlib.suppress(Incomplete, NotApplicable):
                owners[owner_of(thing)] = None
    return tuple(owners)


def evaluated_by_the_log(check: str) -> bool:
    """Whether a check reads the kernel log; an unknown one may."""
    entry = _index(str).get(check)
    return entry is None or "kernel_log" in entry["collectors"]


def _index(say: Callable[[str], object], occasions: tuple[str, ...] = ()) -> dict[str, Entry]:
    try:
        return read_index(occasions=occasions)
    except Stale as why:
        say(f"{why}; every check is loaded, which takes longer")
        return make_index()


def policy_of(settings: Settings, checks: Callable[[], frozenset[str]]) -> Policy:
    """The site's policy for these checks: only read if there is one. Raises NoVerdict."""
    from clusterproof.plugins.core.policy import NO_POLICY, OWN_FILE, PYPROJECT

    if not settings.policy and not any(os.path.isfile(name) for name in (OWN_FILE, PYPROJECT)):
        return NO_POLICY
    doubt = distrust_reason(settings.policy) if settings.policy else ""
    if doubt:
        raise NoVerdict(doubt)
    from pathlib import Path

    from clusterproof.plugins.core.cluster import InventoryError
    from clusterproof.plugins.policy import find_policy, refuse_unknown

    try:
        policy = find_policy(settings.policy or None, Path.cwd())
        if policy.disabled or policy.readings:
            refuse_unknown(policy, checks())
    except InventoryError as wrong:
        raise NoVerdict(f"ERROR: {wrong}") from None
    return policy


def options_of(collector_s: float, policy: Policy, cursor: Cursor | None) -> ProbeOptions:
    """The probe's options here."""
    return ProbeOptions(
        collector_s=collector_s, checkpoints=policy.checkpoints, mounts=policy.mounts, log_cursor=cursor or NO_CURSOR
    )


def prepared(
    entries: Iterable[Entry], occasions: tuple[str, ...], settings: Settings, policy: Policy
) -> Callable[[NodeEvidence], list[Result]]:
    """The function that evaluates the node's evidence, with everything it needs loaded. Raises NoVerdict."""
    from clusterproof.plugins.core.cluster import Cluster, Target
    from clusterproof.plugins.evaluation.evaluate import verdict_on
    from clusterproof.plugins.evidence.node import HEALTH_CHECK
    from clusterproof.plugins.evidence.nodes import nodes

    try:
        checks = [load(entry) for entry in entries]
    except Exception as problem:  # its file is code: anything may fail in it
        raise NoVerdict(f"a check cannot be loaded: {type(problem).__name__}: {problem}") from None
    occasion = occasions[0] if len(occasions) == 1 else HEALTH_CHECK  # as with `-m`, for rules that differ

    def evaluate(evidence: NodeEvidence) -> list[Result]:
        target = Target(evidence.node, instance_type=settings.instance_type, expect=policy.expect)
        cluster = Cluster("local", "local", (target,))
        node = nodes(cluster, {evidence.node: evidence}, occasion, policy)[evidence.node]
        return [verdict_on(policy, check, node) for check in checks]

    return evaluate
