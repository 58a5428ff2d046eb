"""The fault matrix: injects every fault into a node, or a capture of one, and reports which check caught it.

Needs root. WORDS select the faults with these words in their names. Failures are repeated at the end; the last line is
one JSON object. A fault that cannot be injected on this machine counts as missed.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.needs import recorded
from scripts.arguments import Arguments
from tests.builders.reads import Watch, watched
from tests.faults import ALL_FAULTS, captured_fault
from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import Fault
from tests.faults.proof import changes, differing_checks, evidence_of, reason_to_skip, verdicts_of_healthy
from tests.testbed.image import NodeImage

FINDINGS = (Verdict.FAIL, Verdict.CONCERN)


@dataclass(frozen=True)
class Proof:
    """One row of the matrix: each check's verdict on one fault, if it differs from that on a healthy node."""

    fault: str
    changed: Mapping[str, Verdict]
    expected: Mapping[str, Verdict]
    skipped: str = ""
    said: str = ""  # the message of the fault's check, if it lacks the expected words
    otherwise: tuple[str, ...] = ()  # checks with another verdict in a Slurm prolog or epilog
    unrecorded: tuple[str, ...] = ()  # `gpu.no_xid reads nvml`, if the index of reads lacks it

    @property
    def is_detected(self) -> bool:
        """Whether every check that should find it does."""
        if self.skipped or self.said or self.otherwise or self.unrecorded:
            return False
        return all(self.changed.get(name) is verdict for name, verdict in self.expected.items())

    @property
    def false(self) -> dict[str, Verdict]:
        """Verdicts that nothing on the node justifies."""
        return {name: verdict for name, verdict in self.changed.items() if self.expected.get(name) is not verdict}

    def in_words(self) -> str:
        """`a GPU that is lost: fail gpu.gpu_answers, incomplete of 17`."""
        if self.skipped:
            return f"NOT PROVEN  {self.fault}: {self.skipped}"
        wrong = f"; unexpected words: {self.said!r}" if self.said else ""
        wrong += "".join(f"; otherwise in a prolog: {name}" for name in self.otherwise)
        wrong += "".join(f"; not recorded, run scripts/generate needs: {check}" for check in self.unrecorded)
        wrong += "".join(f"; unexpected: {verdict.value} of {name}" for name, verdict in self.false.items())
        return f"{'caught' if self.is_detected else 'MISSED':<10}  {self.fault}: {_by_verdict(self.changed)}{wrong}"


def _by_verdict(changed: Mapping[str, Verdict]) -> str:
    parts = []
    for verdict in Verdict:
        names = [name for name, own in changed.items() if own is verdict]
        if names:
            parts.append(f"{verdict.value} {', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}")
    return "; ".join(parts) or "nothing"


def prove(name: str) -> Proof:
    """Inject one fault into a node, or into a capture of one."""
    fault = next(fault for fault in ALL_FAULTS if fault.name == name)
    skipped = "" if isinstance(fault, CapturedFault) else reason_to_skip(fault)
    otherwise: tuple[str, ...] = ()
    with watched() as watch:
        if skipped:
            results = {}
        elif isinstance(fault, CapturedFault):
            results = captured_fault.changes(fault)
        else:
            evidence = evidence_of(fault)
            results, otherwise = changes(fault, evidence), differing_checks(fault, evidence)
    of_check = results.get(next(iter(fault.expect)))
    message = of_check.message if of_check and fault.words not in of_check.message else ""
    changed = {check: result.verdict for check, result in results.items()}
    return Proof(name, changed, dict(fault.expect), skipped, message, otherwise, tuple(_unrecorded(watch)))


def _unrecorded(watch: Watch) -> Iterator[str]:
    """Reads that the index lacks: a run of only these checks would not collect them."""
    for check, reads in watch.by_check.items():
        missing = reads - recorded().get(check, frozenset())
        if missing:
            yield f"{check} reads {', '.join(sorted(missing))}"


def healthy_findings(faults: Iterable[Fault | CapturedFault]) -> list[str]:
    """Findings on the healthy nodes and captures used for faults: there should be none."""
    findings = []
    for base in dict.fromkeys(fault.base for fault in faults if isinstance(fault, Fault)):
        findings += [f"{verdict.value} of {name} on a healthy {base.__name__}" for name, verdict in _of_node(base)]
    for files in {id(fault.healthy): fault.healthy for fault in faults if isinstance(fault, CapturedFault)}.values():
        findings += [f"{verdict.value} of {name} in a healthy collection" for name, verdict in _of_files(files)]
    return findings


def _of_node(base: Callable[[], NodeImage]) -> list[tuple[str, Verdict]]:
    return [(name, verdict) for name, verdict in verdicts_of_healthy(base).items() if verdict in FINDINGS]


def _of_files(files: Mapping[str, str]) -> list[tuple[str, Verdict]]:
    evaluated = captured_fault.evaluated(files)
    findings = ((name, finding.verdict) for name, result in evaluated.items() for finding in result.by_verdict)
    return [(name, verdict) for name, verdict in findings if verdict in FINDINGS]


def main(arguments: Sequence[str]) -> int:
    """Print the matrix row by row; return 0 if every fault is caught and nothing else is reported."""
    parser = Arguments("scripts/faults", __doc__)
    parser.add_argument("words", nargs="*", metavar="WORDS", help="all faults by default")
    phrase = " ".join(parser.parse_args(arguments).words)
    names = parser.chosen(phrase, [fault.name for fault in ALL_FAULTS], "words of a fault's name, such as ECC")
    chosen = [fault for fault in ALL_FAULTS if fault.name in names]
    of_healthy = healthy_findings(chosen)  # first: a worker is a fork, and has what was loaded and evaluated for it
    proofs = []
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for proof in workers.map(prove, [fault.name for fault in chosen]):
            proofs.append(proof)
            _say(proof.in_words())
    caught = Counter(name for proof in proofs for name, verdict in proof.changed.items() if verdict in FINDINGS)
    silent = sorted(node_checks().keys() - caught.keys())
    named = f": {', '.join(silent)}" if chosen == list(ALL_FAULTS) else ""
    _say(f"{len(node_checks())} checks × {len(chosen)} faults; {len(silent)} checks found none{named}")
    for proof in proofs:
        if not proof.is_detected or proof.false:
            _say(proof.in_words())
    for finding in of_healthy:
        _say(f"FALSE       {finding}")
    detected = sum(proof.is_detected for proof in proofs)
    summary = {
        "faults": len(chosen),
        "detected": detected,
        "missed": len(chosen) - detected,
        "false": sum(len(proof.false) for proof in proofs) + len(of_healthy),
    }
    _say(json.dumps(summary))
    return 1 if summary["missed"] or summary["false"] else 0


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this module is for


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
