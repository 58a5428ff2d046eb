"""Which action a result asks for, and in which order the actions stand: in the line on top, and the findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.core.result import ACTIONS, OF_HARDWARE, UNREACHABLE, Result
from clusterproof.plugins.core.verdict import PROVEN, Verdict

COMMON_CAUSE = "find the common cause"
CANNOT_REACH = "cannot reach"
NOT_PROVEN = "not proven"
OTHER_FILES = "rules that need other files"
LOOK_AT = "look at"  # what is worth it; it keeps no node from work
_KNOWN = (COMMON_CAUSE, *ACTIONS, CANNOT_REACH, NOT_PROVEN, LOOK_AT)
_OF_WHAT = ("node", "pair", "run", "cluster")


def asked(result: Result, of_all: Collection[str]) -> tuple[str, str]:
    """The action that a finding asks for, and the reason; `of_all` are the checks that all nodes fail."""
    name = result.check.rpartition(".")[2]
    if result.is_of_unreachable:
        return CANNOT_REACH, result.cause.removeprefix(UNREACHABLE)
    if result.verdict is Verdict.FAIL:
        action = result.action or ACTIONS[-1]
        return (COMMON_CAUSE if action in OF_HARDWARE and result.check in of_all else action), name
    if result.needs_other_files:
        return NOT_PROVEN, OTHER_FILES
    return (NOT_PROVEN, result.cause or name) if result.verdict is Verdict.INCOMPLETE else (LOOK_AT, name)


def place(action: str, of_what: str) -> tuple[int, int]:
    """Where an action stands, the gravest first; one that only a site knows behind all of ours."""
    return _KNOWN.index(action if action in _KNOWN else CANNOT_REACH), _OF_WHAT.index(of_what)


def place_of(result: Result, of_all: Collection[str]) -> tuple[int, int]:
    """Where the action stands that a finding asks for."""
    return place(asked(result, of_all)[0], of_what(result))


def of_what(result: Result) -> str:
    """What it is about: a node, a pair, a run, or the cluster."""
    if result.is_of_run:
        return "run"
    return "cluster" if result.is_of_cluster else "pair" if result.is_of_pair else "node"


def failed_by_all(results: Sequence[Result], catalog: Catalog) -> set[str]:
    """The checks that all measured nodes fail, where these are not few: hardware fails one by one."""
    least = catalog.threshold("configuration.suspected_minimum_nodes")
    failed = Counter(result.check for result in results if result.verdict is Verdict.FAIL and result.is_of_node)
    suspected = {check for check, count in failed.items() if count >= least}
    passed = {
        result.check
        for result in results
        if result.check in suspected and result.verdict in PROVEN and result.is_of_node
    }
    return suspected - passed
