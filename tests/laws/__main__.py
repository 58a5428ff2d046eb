"""`python -m tests.laws`: are findings reported whatever other evidence is missing, wrong or reordered?

Needs root. Prints hidden findings; the last line is one JSON object.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from tests.faults.captured_fault import CapturedFault
from tests.laws import cut, halves, order, pairs, removal
from tests.laws.cases import Case, case_of
from tests.laws.losses import Loss, Tried, together, write, wrong
from tests.laws.options import LAWS, Options, options_of
from tests.laws.probing import evidence_of

WORKERS = os.cpu_count() or 1
ONE_BY_ONE = {"removal": removal, "order": order, "halves": halves}  # the laws of one fault
CASES: list[Case] = []  # also in the workers, which are forked
PLAIN: list[Case] = []  # the cases that are tried in pairs


def main(arguments: Sequence[str]) -> int:
    """Try the laws; return 0 if nothing is hidden."""
    options = options_of(arguments)
    with ProcessPoolExecutor(WORKERS) as probers:
        evidence = evidence_of(options.faults_needed, probers, options.evidence)
    faults = [fault for fault in options.faults_needed if isinstance(fault, CapturedFault) or fault.name in evidence]
    CASES[:] = [case_of(fault, evidence) for fault in faults]
    PLAIN[:] = [case for case, fault in zip(CASES, faults, strict=True) if pairs.is_plain(fault)]
    tried = {name: _tried(name, options) for name in options.laws}
    hidden = [loss for law in tried.values() for loss in law.hidden()]
    reasons = Counter(loss.reason for law in tried.values() for loss in law.losses if loss.reason)
    for reason, count in reasons.most_common():
        _say(f"EXPLAINED   {count:>4}  {reason}")
    for line in (*map(_in_words, hidden), *(problems := list(wrong(tried, options.is_whole)))):
        _say(line)
    if options.tsv:
        write(options.tsv, hidden)
    removals, of_pairs, orders, cuts, halved = (tried.get(name, Tried(0)) for name in LAWS)
    document = {
        "faults": len(CASES),
        "removals": removals.count,
        "hidden": removals.trials(removals.hidden()),
        "needed": removals.needed,
        "pairs": of_pairs.count,
        "pairs_hidden": of_pairs.trials(of_pairs.hidden()),
        "orders": orders.count,
        "otherwise": orders.trials(orders.hidden()),
        "cuts": cuts.count,
        "called_fit": cuts.trials(cuts.hidden()),
        "halves": halved.count,
        "halves_hidden": halved.trials(halved.hidden()),
    }
    _say(json.dumps(document))
    return 1 if hidden or problems else 0


def _tried(law: str, options: Options) -> Tried:
    """Try one law on all its cases, in as many processes as there are processors."""
    count = {"pairs": len(PLAIN), "cut": WORKERS}.get(law, len(CASES))
    with ProcessPoolExecutor(WORKERS) as workers:
        return together(workers.map(_on_one, [law] * count, range(count), [options.checks] * count))


def _on_one(law: str, number: int, checks: tuple[str, ...]) -> Tried:
    if law == "cut":
        return cut.tried(cut.every_cut()[number::WORKERS])
    if law == "pairs":
        return pairs.tried(PLAIN[number], PLAIN[number + 1 :], checks)
    return ONE_BY_ONE[law].tried(CASES[number], checks)


def _in_words(loss: Loss) -> str:
    return f"HIDDEN      {loss.check}: {loss.fault}: beside {loss.beside}: {loss.finding!r}; says {loss.instead!r}"


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - what this module is for


if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    sys.exit(main(sys.argv[1:]))
