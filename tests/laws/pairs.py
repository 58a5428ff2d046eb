"""The law of pairs: two faults in one node are both named, each with its values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.result import Finding
from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import Fault, p5
from tests.laws.cases import Case
from tests.laws.findings import Words, devices, in_line, is_reported, values, words
from tests.laws.losses import Loss, Tried, instead
from tests.laws.merge import Conflict, merged
from tests.laws.taken import taken


def is_plain(fault: Fault | CapturedFault) -> bool:
    """Whether it is a fault of the standard node, evaluated in the standard way."""
    if not isinstance(fault, Fault):
        return False
    return fault.base is p5 and fault.occasion == "preflight" and fault.policy is NO_POLICY and not fault.loads


def tried(case: Case, others: Sequence[Case], checks: Collection[str]) -> Tried:
    """Inject each of the other faults as well, unless they change the same value."""
    count = 0
    losses: list[Loss] = []
    for other in others:
        try:
            both = merged(case.evidence, other.evidence, case.healthy)
        except Conflict:
            continue
        count += 1
        losses += [*_lost(case, other, both, checks), *_lost(other, case, both, checks)]
    return Tried(count, tuple(losses))


def _lost(case: Case, beside: Case, both: NodeEvidence, checks: Collection[str]) -> Iterator[Loss]:
    """What names one fault and is not reported beside the other."""
    for check, findings in case.named.items():
        if check not in checks or case.reads[check].isdisjoint(beside.changed_keys):
            continue  # none of its reads differs now, so its result is the same
        after = case.says(check, both)
        reason = taken(check, case.name, beside.name)
        for finding in findings:
            if not is_reported(finding, after, reckoned(finding, case), or_worse=True):
                yield Loss(check, case.name, beside.name, in_line(finding), instead(after), reason)


def reckoned(finding: Finding, case: Case) -> Words:
    """The numbers in a finding that are not the fault's own, and may change with further faults."""
    return values(words(finding.message)) - case.own - words(devices(finding))
