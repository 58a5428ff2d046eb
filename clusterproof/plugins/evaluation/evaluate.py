"""Evaluates a check: calls it for each of its subjects; the worst finding is the verdict."""

from __future__ import annotations

import sys
import time

from clusterproof.plugins.core.errors import raised_at
from clusterproof.plugins.core.policy import Policy, disabled_reason
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import (
    SEVERITIES,
    UNREACHABLE,
    Finding,
    Result,
    devices_of,
    grouped,
    with_findings,
)
from clusterproof.plugins.core.typed import Any, TypeAlias
from clusterproof.plugins.core.verdict import Concern, Incomplete, NotApplicable, Recording, Several, Verdict
from clusterproof.plugins.evaluation.check import (
    COUNTED,
    DEVICES,
    SUBJECTS_OF_RUN,
    UNLABELLED,
    Check,
    CheckOwner,
    call,
    subjects_of,
)
from clusterproof.plugins.evaluation.routing import Route
from clusterproof.plugins.evidence.gpu.facts import HIDDEN
from clusterproof.plugins.evidence.node import Node

Examined: TypeAlias = tuple[list[Finding], float]  # a check's findings on its subjects, and the seconds that it took


def verdict_on(policy: Policy, check: Check, owner: CheckOwner, examined: Examined | None = None) -> Result:
    """A check's verdict on a node, after the site's policy; `examined` if the check was called already."""
    rule = policy.disables(check.route.check, owner.name)
    if rule:
        return not_run(check, owner, disabled_reason(rule, policy.source))
    return policy.read(evaluate(check, owner, examined))


def verdicts_on(policy: Policy, check: Check, owner: CheckOwner) -> list[Result]:
    """The same by device: one result for each that is not well or not evaluated, and one for all others together."""
    rule = policy.disables(check.route.check, owner.name)
    if rule:
        return [not_run(check, owner, disabled_reason(rule, policy.source))]
    findings = _findings(check, owner)
    notable: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        if finding.verdict.is_finding:
            notable.setdefault(finding.devices, []).append(finding)
    return [
        policy.read(_result(check.route, check.subject, owner, some, 0.0)) for some in notable.values() or [findings]
    ]


def evaluate(check: Check, owner: CheckOwner, examined: Examined | None = None) -> Result:
    """Run a check on a node, a pair of nodes, or the cluster: one result, as bad as that of the worst device."""
    return _result(check.route, check.subject, owner, *(examined or examine(check, owner)))


def examine(check: Check, owner: CheckOwner) -> Examined:
    """Call a check for each of its subjects. Returns ALL_PASSED if all of them pass, however many there are."""
    started = time.perf_counter()
    findings = _findings(check, owner)
    is_well = 0 < len(findings) == findings.count(_PASSED)
    return ALL_PASSED if is_well else findings, time.perf_counter() - started


def not_run(check: Check, owner: CheckOwner, why: str) -> Result:
    """The result of a check that is not to be run: not applicable, with the reason."""
    return _result(check.route, check.subject, owner, [Finding(Verdict.NOT_APPLICABLE, why)], 0.0)


def result_of(about: Route, node: CheckOwner, outcome: BaseException | None, seconds: float) -> Result:
    """The result of a test that pytest itself ran, from how it ended."""
    outcomes = outcome.outcomes if isinstance(outcome, Several) else (outcome,)
    findings = [Finding(Verdict.PASS) if outcome is None else _finding((), outcome) for outcome in outcomes]
    return _result(about, "node", node, findings, seconds)


def _findings(check: Check, owner: CheckOwner) -> list[Finding]:
    with Recording() as recording:
        try:
            subjects = list(subjects_of(check, owner))
            unlisted = [_finding((), outcome) for outcome in recording.take(None)]
            if not subjects:
                return [_without_devices(check.subject, owner), *unlisted]
            unseen = _unread_parts(check.subject, owner)
        except Exception as error:  # bad data from a node affects at most its own checks
            return [_finding((), outcome) for outcome in recording.take(error)]
        findings = [finding for subject in subjects for finding in _examine(check, subject, owner, recording)]
    return [*findings, *unlisted, *unseen]


def _unread_parts(subject: str, owner: CheckOwner) -> list[Finding]:
    """That there are GPUs which the probe was not let at, or files of a run: what holds for the others is no pass."""
    if subject in SUBJECTS_OF_RUN and (unread := getattr(owner, "unread", "")):
        return [Finding(Verdict.INCOMPLETE, unread, cause=unread)]
    if subject != "gpu" or not isinstance(owner, Node) or not owner.hidden_gpus:
        return []
    return [Finding(Verdict.INCOMPLETE, owner.hidden_gpus, cause=HIDDEN)]


def _without_devices(subject: str, owner: CheckOwner) -> Finding:
    """What a check of devices says where there is none: incomplete where there should be some."""
    try:
        expected = _expected(owner, subject) if isinstance(owner, Node) else 0
    except Incomplete:
        expected = 0  # unknown: then not applicable; the check that counts devices is itself incomplete
    if expected:
        message = f"no {DEVICES[subject]} answers; expected {expected}"
        return Finding(Verdict.INCOMPLETE, message, cause=f"no {DEVICES[subject]} answers")
    return Finding(Verdict.NOT_APPLICABLE, f"no {DEVICES[subject]} on this {_owner_word(owner)}")


def _expected(node: Node, subject: str) -> int:
    """How many of these devices the node should have; 0 for those of which no number is expected. Raises Incomplete."""
    if subject == "ib_device":  # no instance type says how many
        return node.target.expect.get("ib", 0)
    return node.expected(COUNTED[subject]) if subject in COUNTED else 0


def _owner_word(owner: CheckOwner) -> str:
    return "node" if isinstance(owner, Node) else "cluster"


def _examine(check: Check, subject: Any, owner: CheckOwner, recording: Recording) -> list[Finding]:
    """What a check found of one subject, in the order in which it says it."""
    raised: BaseException | None = None
    try:
        call(check, subject, owner)
    except _outcome_types() as outcome:  # whatever a check raises is a finding; a crash makes it incomplete
        raised = outcome
    outcomes = recording.take(raised)
    if not outcomes:
        return ALL_PASSED
    devices = () if check.subject in UNLABELLED else (_label(subject),)
    return [_finding(devices, outcome) for outcome in outcomes]


def raised_by(check: Check, owner: CheckOwner, verdict: Verdict) -> BaseException | None:
    """What a check raises first with this verdict, where nothing is recorded: with its traceback, for a debugger."""
    try:
        subjects = list(subjects_of(check, owner))
    except Exception as error:
        return error
    for subject in subjects:
        try:
            call(check, subject, owner)
        except _outcome_types() as outcome:
            if _finding((), outcome).verdict is verdict:
                return outcome
    return None


_PASSED = Finding(Verdict.PASS)
ALL_PASSED = [_PASSED]


def _outcome_types() -> tuple[type[BaseException], ...]:
    # A check that calls sys.exit, or whose asyncio task is cancelled, ends itself, not the run.
    asyncio = sys.modules.get("asyncio")
    return (Exception, SystemExit, *([asyncio.CancelledError] if asyncio else []), *_pytest_outcomes())


def _pytest_outcomes() -> tuple[type[BaseException], ...]:
    """The exceptions of `pytest.skip` and `pytest.fail`; none if pytest is not imported."""
    pytest = sys.modules.get("pytest")
    return (pytest.skip.Exception, pytest.fail.Exception) if pytest else ()


def _label(subject: Any) -> str:
    try:
        return str(subject.label)
    except Exception:  # a name that the node did not report, or not as text
        return "a device without a name"


def _finding(devices: tuple[str, ...], outcome: BaseException) -> Finding:
    if isinstance(outcome, AssertionError):
        cause, action = getattr(outcome, "cause", ""), getattr(outcome, "action", "")
        return Finding(Verdict.FAIL, assertion_message(outcome), devices, cause, action)
    if isinstance(outcome, Concern):
        return Finding(Verdict.CONCERN, str(outcome), devices, outcome.cause)
    if isinstance(outcome, Incomplete):
        return Finding(Verdict.INCOMPLETE, str(outcome), devices, outcome.cause)
    if isinstance(outcome, NotApplicable):
        return Finding(Verdict.NOT_APPLICABLE, str(outcome), devices)
    for verdict, kind in zip((Verdict.NOT_APPLICABLE, Verdict.FAIL), _pytest_outcomes(), strict=False):
        if isinstance(outcome, kind):
            return Finding(verdict, str(getattr(outcome, "msg", "") or outcome), devices)
    what = f"the check itself broke: {type(outcome).__name__}: {outcome}{_suggestion(outcome)} ({raised_at(outcome)})"
    return Finding(Verdict.INCOMPLETE, what, devices, cause=what)


def _suggestion(error: BaseException) -> str:
    """The fact that was probably meant, if a check asks for one that does not exist."""
    if not isinstance(error, AttributeError) or not error.name:
        return ""
    from clusterproof.plugins.core.strict import nearest

    return nearest(error.name, [name for name in dir(type(error.obj)) if not name.startswith("_")])


def assertion_message(failed: AssertionError) -> str:
    """The message of an assert, without the explanation that pytest's rewriting appends."""
    text = str(failed)
    return text.split("\nassert ", 1)[0] or text


def _result(about: Route, subject: str, node: CheckOwner, findings: list[Finding], seconds: float) -> Result:
    if isinstance(node, Node):
        about = about.to(node.target.address)
    result = Result(
        check=about.check,
        node=node.name,
        verdict=Verdict.PASS,
        title=about.title,
        message="",
        observed="",
        expected="",
        devices=(),
        cause="",
        owner=about.owner,
        section=about.section,
        severity=SEVERITIES.get(Verdict.PASS, "none"),
        evidence=about.shown_by(node),
        meaning=about.meaning,
        remedy=about.remedy_for(node),
        subsystem=about.subsystem,
        subject=subject,
        instance_type=node.type_name,
        gpu_uuids=node.gpu_uuids,
        duration_s=round(seconds, 6),
        since_last="",
        action="",
        team=about.team,
        findings=(),
    )
    if findings is ALL_PASSED:
        return result
    is_reached = not isinstance(node, Node) or node.evidence.unreached is None
    return _with(result, findings if is_reached else _unreached_findings(findings), about.action)


def _unreached_findings(findings: list[Finding]) -> list[Finding]:
    """The finding on a node that was not reached: only that, because other gaps add nothing."""
    why = [finding for finding in findings if finding.cause.startswith(UNREACHABLE)]
    others = [finding for finding in findings if finding.verdict is not Verdict.INCOMPLETE]
    return [*others, *why] if why else findings


def _with(result: Result, findings: list[Finding], action: str) -> Result:
    """The result with its findings; a failure that names no action gets the remedy's."""
    notable = [
        replace(finding, action=finding.action or action) if finding.verdict is Verdict.FAIL else finding
        for finding in findings
        if finding.verdict.is_finding
    ]
    if notable:
        return with_findings(result, grouped(notable))
    best = min(findings, key=lambda finding: finding.verdict.rank)
    devices = grouped(finding for finding in findings if finding.verdict is best.verdict)
    return replace(with_findings(result, grouped((best,))), devices=devices_of(devices, best.verdict), findings=())
