"""A case: what was collected of a job, the verdict on it, and what follows from that."""

from __future__ import annotations

from clusterproof.plugins.case.advice import Advice, advise
from clusterproof.plugins.case.records import Collected
from clusterproof.plugins.case.verdict import Verdict, decide
from clusterproof.plugins.case.window import of_another_time
from clusterproof.plugins.core.record import record, replace


@record
class Case:
    """Everything that is said of a case."""

    collected: Collected
    verdict: Verdict
    advice: Advice


def opened_case(collected: Collected) -> Case:
    """The verdict on what was collected, and what follows from it."""
    collected = replace(collected, missing=(*of_another_time(collected), *collected.missing))
    verdict = decide(collected)
    return Case(collected, verdict, advise(collected, verdict))
