"""The law of order and names: findings do not depend on order, names or dates."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from clusterproof.plugins.core.evidence import NodeEvidence, from_json, to_json
from clusterproof.plugins.core.nodeset import expand
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Finding
from tests.faults.proof import NODE, PEERS
from tests.laws.cases import Case
from tests.laws.findings import in_line, words
from tests.laws.losses import Loss, Tried, instead

DEVICES = {  # each collector's lists of devices
    "ebs": ("volumes",),
    "edac": ("controllers",),
    "efa_counters": ("devices",),
    "ena_counters": ("interfaces",),
    "interfaces": ("physical",),
    "lustre": ("clients", "caches"),
    "logs": ("folders",),
    "lustre_space": ("targets",),
    "neuron": ("devices",),
    "nvme": ("controllers",),
    "nvml": ("gpus",),
    "pci": ("devices",),
    "rdma": ("devices",),
}
OTHER_NAMES = dict(zip((NODE, *PEERS), ("trn-b-19", "trn-b-7", "trn-a-3", "trn-a-1"), strict=True))
DAYS_S = 40 * 86_400.0
EARLIER_S = 3_600.0
_FOLDED = re.compile(r"[\w.-]+\[[\d,-]+\]")  # names of nodes
Change = Callable[[NodeEvidence], NodeEvidence]


def tried(case: Case, checks: Collection[str]) -> Tried:
    """Try these checks of the fault on each node that differs only in order and names."""
    losses: list[Loss] = []
    count = 0
    for check in case.named.keys() & set(checks):
        before = case.says(check)
        for name, change in CHANGES.items():
            count += 1
            after = case.says(check, change(case.evidence), [change(peer) for peer in case.peers])
            losses += [
                Loss(check, case.name, name, in_line(finding), instead(after))
                for finding in _differing(before, after, name)
            ]
    return Tried(count, tuple(losses))


def _differing(before: Sequence[Finding], after: Sequence[Finding], name: str) -> list[Finding]:
    """The findings that disappeared, and those that appeared."""
    renamed = OTHER_NAMES if name == "other names" else {}
    expected = Counter(_words_of(finding, renamed) for finding in before)
    known = Counter(_words_of(finding, {}) for finding in after)
    gone, new = expected - known, known - expected
    return [finding for finding in before if _words_of(finding, renamed) in gone] + [
        finding for finding in after if _words_of(finding, {}) in new
    ]


def _words_of(finding: Finding, renamed: dict[str, str]) -> tuple[object, ...]:
    text = _FOLDED.sub(lambda folded: ", ".join(expand(folded[0])), finding.line)
    for name, other in renamed.items():
        text = text.replace(name, other)
    return finding.verdict, finding.cause, words(text)


def devices_reversed(evidence: NodeEvidence) -> NodeEvidence:
    """Devices in another order."""
    collectors = dict(evidence.collectors)
    for name, keys in DEVICES.items():
        value = collectors[name].value if name in collectors else None
        if isinstance(value, dict):
            backwards = {key: value[key][::-1] for key in keys if isinstance(value.get(key), list)}
            collectors[name] = replace(collectors[name], value={**value, **backwards})
    return replace(evidence, collectors=collectors)


def keys_reversed(evidence: NodeEvidence) -> NodeEvidence:
    """Every object's keys in another order."""
    return from_json(_backwards(to_json(evidence)))


def _backwards(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _backwards(value[key]) for key in reversed(value)}
    return [_backwards(entry) for entry in value] if isinstance(value, list) else value


def other_names(evidence: NodeEvidence) -> NodeEvidence:
    """Nodes of other names, in another order."""
    text = json.dumps(to_json(evidence))
    for name, other in OTHER_NAMES.items():
        text = text.replace(name, other)
    return from_json(json.loads(text))


def another_clock(evidence: NodeEvidence) -> NodeEvidence:
    """The node booted on another day, and the log lines from after the boot have earlier times."""
    collectors = dict(evidence.collectors)
    boot, log = collectors.get("boot"), collectors.get("kernel_log")
    if boot and isinstance(boot.value, dict) and isinstance(boot.value.get("now"), float):
        collectors["boot"] = replace(boot, value={**boot.value, "now": boot.value["now"] + DAYS_S})
    if log and isinstance(log.value, dict):
        lines = [[_earlier(line[0]), *line[1:]] for line in log.value["lines"]]
        collectors["kernel_log"] = replace(log, value={**log.value, "lines": lines})
    return replace(evidence, collectors=collectors)


def _earlier(seconds: Any) -> Any:
    return seconds - EARLIER_S if isinstance(seconds, float) and 2 * EARLIER_S < seconds < DAYS_S else seconds


CHANGES: dict[str, Change] = {
    "devices in another order": devices_reversed,
    "keys in another order": keys_reversed,
    "other names": other_names,
    "another boot's clock": another_clock,
}
