"""A fault: put into an otherwise healthy node, it changes just the verdicts that it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from clusterproof.plugins.policy.model import NO_POLICY, Policy
from clusterproof.plugins.verdict import Verdict
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_p5

FAIL, CONCERN, INCOMPLETE, NA = Verdict.FAIL, Verdict.CONCERN, Verdict.INCOMPLETE, Verdict.NOT_APPLICABLE


def p5() -> NodeImage:
    """The node that every fault of a p5 is put into."""
    return healthy_p5()


@dataclass(frozen=True)
class Fault:
    """One fault, every verdict that it changes from the healthy node's, and words that the first one's message has."""

    name: str
    put: Callable[[NodeImage], NodeImage]
    expect: Mapping[str, Verdict]
    words: str
    base: Callable[[], NodeImage] = p5
    beside: str = ""
    occasion: str = "preflight"
    leaf_s: float = 5.0
    policy: Policy = NO_POLICY
    marks: tuple[pytest.MarkDecorator, ...] = field(default=())
