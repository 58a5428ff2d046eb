"""Puts a fault into a node among healthy ones, and says which verdicts it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from clusterproof.plugins.evidence import NodeEvidence
from clusterproof.plugins.load.options import LEAVES
from clusterproof.plugins.result import Result
from clusterproof.plugins.verdict import Verdict
from tests.faults.fault import Fault
from tests.judged import results, told_by
from tests.testbed.image import NodeImage
from tests.testbed.load import LOADABLE
from tests.testbed.needs import needs_nodes

NODE, PEERS = "gpu001", ("gpu002", "gpu003", "gpu004")


@cache
def healthy(base: Callable[[], NodeImage]) -> NodeEvidence:
    """What the node tells that a fault is put into."""
    return told_by(base(), NODE, loads=LEAVES if base in LOADABLE else ())


@cache
def verdicts_of_healthy(base: Callable[[], NodeImage]) -> dict[str, Verdict]:
    """Every check's verdict on it, among its like."""
    return {name: result.verdict for name, result in results(healthy(base), peers=peers(base)).items()}


def peers(base: Callable[[], NodeImage]) -> list[NodeEvidence]:
    """The healthy nodes beside it."""
    return [replace(healthy(base), node=name) for name in PEERS]


def reason_to_skip(fault: Fault) -> str:
    """Why this machine cannot put that fault into a node, else empty."""
    needed = (needs_nodes, *fault.marks)
    return next((mark.kwargs["reason"] for mark in needed if mark.name == "skipif" and mark.args[0]), "")


def changes(fault: Fault) -> dict[str, Result]:
    """The results of those checks whose verdict the fault changes, by the check's id."""
    told = told_by(fault.put(fault.base()), NODE, fault.leaf_s, fault.beside, fault.policy.checkpoints, fault.loads)
    if fault.base in LOADABLE:
        loads = {name: leaf for name, leaf in healthy(fault.base).leaves.items() if name in LEAVES}
        told = replace(told, leaves=loads | dict(told.leaves))
    found = results(told, fault.occasion, peers(fault.base), fault.policy)
    before = verdicts_of_healthy(fault.base)
    return {name: result for name, result in found.items() if result.verdict is not before[name]}
