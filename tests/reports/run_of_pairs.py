"""The section of pairs on the page of a run that measured them."""

from __future__ import annotations

import re
from functools import cache

from clusterproof.plugins.benchmarks.pairwise.facts import PairwiseRun
from clusterproof.reports.formats.html import document
from clusterproof.reports.run import Run
from tests.benchmarks.pairwise.pair_faults import PAIR_FAULTS, PairFault
from tests.benchmarks.pairwise.pair_faults import run_of as measured
from tests.reports.page import Page
from tests.reports.reported import result, run_of

FAULTS = {fault.name: fault for fault in PAIR_FAULTS}
SLOW = FAULTS["a node that is 20 % slower"]


def run(between: PairwiseRun | None) -> Run:
    """A run over these nodes in which every check passed."""
    nodes = between.campaigns[0].journal.plan.nodes[:40] if between and between.campaigns else ("n0001",)
    return run_of([result("network.not_a_straggler", node) for node in nodes], between=between)


def section(between: PairwiseRun | None) -> str:
    """The HTML of the section; empty where there is none."""
    found = re.search(r'<section id="pairs".*?</section>', document(run(between)), re.DOTALL)
    return found[0] if found else ""


@cache
def page(fault: PairFault) -> str:
    return section(measured(fault))


def words_of(html: str) -> str:
    """What a person reads of it."""
    return " ".join(Page(html).text.split())
