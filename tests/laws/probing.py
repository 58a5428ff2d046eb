"""Probes each fault's evidence once, and keeps it for further runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path

from clusterproof.plugins.core.evidence import NodeEvidence, from_json, to_json
from tests.builders.evaluated import minified_once
from tests.faults import BY_NAME, proof
from tests.faults.captured_fault import CapturedFault
from tests.faults.fault import Fault
from tests.laws.cases import healthy_name


def evidence_of(
    faults: Iterable[Fault | CapturedFault], workers: Executor, kept: Path | None = None
) -> dict[str, NodeEvidence]:
    """The evidence of live faults and their healthy nodes, by name.

    If `kept` is a file, its content is not probed again, and missing evidence is added to it.
    """
    known = _read(kept) if kept and kept.exists() else {}
    live = [fault for fault in faults if isinstance(fault, Fault) and not proof.reason_to_skip(fault)]
    bases = {healthy_name(fault): fault.name for fault in reversed(live)}
    names = [name for name in (*bases, *(fault.name for fault in live)) if name not in known]
    minified_once()
    probed = dict(zip(names, workers.map(_probed, [bases.get(name, name) for name in names], names), strict=True))
    if kept and probed:
        with kept.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps([name, to_json(evidence)])}\n" for name, evidence in probed.items())
    return {**known, **probed}


def _probed(fault: str, name: str) -> NodeEvidence:
    """The evidence of that fault's node, or of the healthy one if another name is requested."""
    return proof.evidence_of(BY_NAME[fault]) if fault == name else proof.healthy(BY_NAME[fault].base)


def _read(kept: Path) -> dict[str, NodeEvidence]:
    records = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()]
    return {name: from_json(record) for name, record in records}
