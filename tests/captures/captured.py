"""Captures as users collect them: files in a folder, and the checks' results on them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures import layout
from clusterproof.plugins.captures.collection import Understood, read_capture, read_text, understood
from clusterproof.plugins.captures.text import decoded, plain, unpacked
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from tests.builders.evaluated import results

XID = "NVRM: Xid (PCI:0000:53:00): 48, pid=1, name=a, DBE"
WELL = "[    0.000000] Linux version 6.8.0-1021-aws (x)\n[   12.500000] usb 1-1: new device\n"
ILL = f"{WELL}[   13.500000] {XID}\n"


def written(folder: Path, *names: str, **contents: str | bytes) -> Path:
    """A folder with these files."""
    for name, content in {**dict.fromkeys(names, "x"), **contents}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else textwrap.dedent(content).encode())
    return folder


def text_of(content: bytes) -> str:
    """The text of a file as a capture is read."""
    return plain(decoded(unpacked(content)))


def output_of(text: str) -> dict[str, Any]:
    """A text's data by collector; all of the text must be recognised."""
    values, problems = read_text(textwrap.dedent(text))
    assert not problems
    return values


def gpus_in(text: str) -> list[dict[str, Any]]:
    """The GPUs in a text."""
    return list(output_of(text)["nvml"]["gpus"])


def first_gpu(text: str) -> dict[str, Any]:
    """The first GPU in a text."""
    return gpus_in(text)[0]


def of_file(file: Path) -> Understood:
    """What is recognised in one file that is a capture by itself."""
    return understood(layout(file).nodes[0], file.parent, collector_names())


def evaluated(file: Path, instance_type: str = "") -> Mapping[str, Result]:
    """The result of every check on a capture of one file."""
    return results(of_file(file).evidence, instance_type=instance_type)


def findings_in(folder: Path, text: str, check: str) -> list[tuple[Verdict, str]]:
    """A check's findings in a text; missing evidence is ignored."""
    result = evaluated(written(folder, output=text) / "output")[check]
    return [
        (finding.verdict, finding.message)
        for finding in result.by_verdict or (result,)
        if finding.verdict in (Verdict.FAIL, Verdict.CONCERN)
    ]


def observed_in(folder: Path, text: str, check: str) -> list[tuple[Verdict, str]]:
    """The same, without what was expected."""
    return [(verdict, message.partition(";")[0]) for verdict, message in findings_in(folder, text, check)]


def xids(path: Path) -> dict[str, Verdict]:
    """The Xid check's result on each node of a capture."""
    cluster = resolve(f"capture:{path}")
    captured = read_capture(path, cluster, collector_names())
    known = nodes(cluster, {capture.evidence.node: capture.evidence for capture in captured})
    return {name: evaluate(node_checks()["gpu.no_xid"], node).verdict for name, node in known.items()}
