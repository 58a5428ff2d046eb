"""Results of collectors that load a node."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from clusterproof.plugins.agent.frame import decode
from clusterproof.plugins.benchmarks.load.asking import program
from clusterproof.plugins.benchmarks.load.options import SECONDS, LoadOptions
from clusterproof.plugins.core.evidence import Collected, NodeEvidence
from clusterproof.plugins.transport import Answer
from tests.builders.probed import answer
from tests.testbed.load import OPTIONS
from tests.testbed.node import NodeImage, entered


def evidence_of(image: NodeImage, collector: str, chosen: LoadOptions = OPTIONS) -> Collected:
    """One collector's result on a fake node."""
    to_run = program([collector], chosen)
    with entered(image, "gpu001") as node:
        ran = node.run(["/bin/sh", "-c", to_run.command], input=to_run.stdin, timeout=600)
    evidence = decode("gpu001", Answer(ran.stdout + ran.stderr), to_run.nonce)
    assert evidence.unreached is None, evidence.detail
    return evidence.collectors[collector]


def loaded(collectors: Iterable[str], chosen: LoadOptions) -> NodeEvidence:
    """These collectors' results on this machine."""
    to_run = program([collector for collector in SECONDS if collector in collectors], chosen)
    return decode("here", Answer(answer(to_run)), to_run.nonce)


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
