"""What results of a node's checks say is found, by device and rule, so that each finding opens and closes by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from clusterproof.plugins.catalog.log_forms import log_forms
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Incomplete, NotApplicable, Verdict
from clusterproof.plugins.evidence.kernel_log.wording import gpus_by_address, line_findings
from clusterproof.plugins.evidence.kernel_log.xid_findings import XidFinding, evaluate, evaluate_switches
from clusterproof.plugins.evidence.node import Node
from clusterproof.plugins.watch import ALSO, RuleResult, RuleResults, Unknown

XIDS: Mapping[str, str] = {"gpu.no_xid": "Xid", "gpu.no_sxid": "SXid"}  # whose findings are reported individually


def rule_results_of(node: Node, results: Iterable[Result]) -> RuleResults:
    """The findings in results of a node's checks, by device and check."""
    rule_results: dict[tuple[str, str], RuleResult] = {}
    every = (part for result in results for part in result.by_verdict)
    for result in sorted(every, key=lambda part: part.verdict.rank):
        if result.verdict not in (Verdict.FAIL, Verdict.CONCERN):
            continue
        one_by_one = {**_xid_results(node, result), **_line_results(node, result)}
        if one_by_one:
            rule_results = one_by_one | rule_results
        else:
            for device in result.devices or ("",):
                before = rule_results.get((device, result.check))
                rule_results[device, result.check] = _joined(before, result.verdict, result.message.split("\n"))
    return rule_results


def _joined(earlier: RuleResult | None, verdict: Verdict, messages: Sequence[str]) -> RuleResult:
    """The findings so far and further ones in one line, with the worst verdict."""
    if earlier is None:
        return RuleResult(verdict, ALSO.join(messages), len(messages))
    worst = min(earlier.verdict, verdict, key=lambda one: one.rank)
    return RuleResult(worst, ALSO.join([earlier.message, *messages]), earlier.findings + len(messages))


def evaluated(results: Iterable[Result]) -> tuple[frozenset[str], Unknown]:
    """The checks that could be evaluated, and the devices for which they could not: their states stay open."""
    every = list(results)
    unknown = {
        (device, part.check)
        for result in every
        for part in result.by_verdict
        if part.verdict is Verdict.INCOMPLETE
        for device in part.devices or ("",)
    }
    return frozenset(part.check for part in every if ("", part.check) not in unknown), frozenset(unknown)


def _line_results(node: Node, result: Result) -> RuleResults:
    """Findings of the kernel log, for checks that evaluate nothing else: each form of line and device once."""
    if result.check not in evaluated_by_line():
        return {}
    try:
        lines, _ = line_findings(node, result.check)
    except (Incomplete, NotApplicable):
        return {}
    rule_results: dict[tuple[str, str], RuleResult] = {}
    for line in lines:
        key = (", ".join(filter(None, (line.device, line.form.label))), result.check)
        verdict, before = _read(Verdict.FAIL if line.fails else Verdict.CONCERN, node, result), rule_results.get(key)
        rule_results[key] = _joined(before, verdict, [line.words])
    return rule_results


def _read(verdict: Verdict, node: Node, result: Result) -> Verdict:
    """The verdict as the site's policy reads it in a result of the same check."""
    return node.policy.verdict_of(result.check, result.owner, verdict)


def over_by_line(node: Node) -> frozenset[str]:
    """The checks whose findings end with a later line: they do not stay open because the log lost its beginning."""
    try:
        node.kernel_events  # noqa: B018 - raises Incomplete if it could not be read
    except Incomplete:
        return frozenset()
    return evaluated_by_line()


@cache
def evaluated_by_line() -> frozenset[str]:
    """Checks that only evaluate forms of kernel log lines, and those of Xids."""
    by_form = {form.check for form in log_forms().values() if form.check}
    return frozenset(by_form - {form.check for form in log_forms().values() if form.event}) | XIDS.keys()


def _xid_results(node: Node, result: Result) -> RuleResults:
    """The Xid findings of the kernel log: each GPU and code once."""
    if result.check not in XIDS:
        return {}
    try:
        findings = [finding for finding in _xids(node) if finding.severity != "none"]
        names = gpus_by_address(node)
    except (Incomplete, NotApplicable):
        findings, names = [], {}
    rule_results: dict[tuple[str, str], RuleResult] = {}
    for finding in findings:
        if finding.family == XIDS[result.check]:
            where = names[finding.pci].label if finding.pci in names else finding.pci or "an unnamed device"
            title = f"{finding.family} {finding.code} ({finding.name}){f', {finding.part}' if finding.part else ''}"
            verdict = _read(Verdict.FAIL if finding.severity == "fail" else Verdict.CONCERN, node, result)
            rule_results[f"{where}, {finding.family} {finding.code}", result.check] = RuleResult(
                verdict, f"{title}: {finding.action}"
            )
    return rule_results


def _xids(node: Node) -> tuple[XidFinding, ...]:
    events, gpus = node.kernel_events, gpus_by_address(node)
    due = [address for address, gpu in gpus.items() if gpu.remap_is_due]
    uuids = {address: gpu.uuid for address, gpu in gpus.items()}
    return (*evaluate(events, node.catalog, remap_due=due, uuids=uuids), *evaluate_switches(events, node.catalog))
