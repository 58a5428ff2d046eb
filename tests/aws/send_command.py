"""Instances that are sent one command by Systems Manager, and what they report."""

from __future__ import annotations

from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.transport import Answer, Limits
from clusterproof.plugins.transport.gather import evidence_of
from clusterproof.plugins.transport.ssm import Ssm
from tests.builders.probed import ANSWER_S

LIMITS = Limits(fanout=8, connect_s=ANSWER_S, answer_s=ANSWER_S, settings={"region": "us-west-2"})


def targets(count: int) -> list[Target]:
    """EC2 instances."""
    return [Target(f"gpu{number:03d}", f"i-{number:017x}") for number in range(count)]


def gathered(count: int = 1, limits: Limits = LIMITS) -> list[NodeEvidence]:
    """The reports of that many instances, in order."""
    to_run = program(frozenset({"boot"}), ProbeOptions(), on_stdin=False)
    by_name: dict[str, NodeEvidence] = {}

    def answered(target: Target, answer: Answer) -> None:
        assert target.name not in by_name
        by_name[target.name] = evidence_of(target, answer, to_run.nonce)

    Ssm().run(targets(count), to_run, limits, answered)
    return [by_name[target.name] for target in targets(count)]
