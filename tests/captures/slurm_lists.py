"""Slurm's listings of several nodes, and the results for captures that contain them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clusterproof.plugins.agent.program import collector_names
from clusterproof.plugins.captures.collection import not_understood, read_capture
from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import node_checks
from clusterproof.plugins.evaluation.evaluate import evaluate
from clusterproof.plugins.evidence.nodes import nodes
from clusterproof.plugins.inventory import resolve
from tests.captures.captured import written

IN_SLURM = "control_plane.slurm_nodes"

SINFO = """\
$ sinfo
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu          up 14-00:00:0      2  drng@ gpu[002,004]
gpu          up 14-00:00:0      1  down$ gpu009
gpu          up 14-00:00:0      2    mix gpu[006-007]
"""
WITHOUT_PROMPT = SINFO.partition("\n")[2]
REASONS = """\
REASON               USER      TIMESTAMP           NODELIST
Kill task failed     root      2024-01-25T15:12:23 gpu[002,004]
NHC: GPU is lost     root      2024-01-26T15:12:23 gpu009
"""
RECORDS = "".join(
    f"NodeName={name} Arch=x86_64\n   CPUAlloc=0 CPUTot=192\n   State={state}\n   Partitions=gpu\n\n"
    for name, state in (("gpu002", "IDLE+DRAIN"), ("gpu004", "DOWN*"), ("gpu006", "MIXED"))
)


def results(check: str, path: Path) -> Mapping[str, Result]:
    """A check's result on each node of a capture."""
    cluster = resolve(f"capture:{path}")
    captured = read_capture(path, cluster, collector_names())
    known = nodes(cluster, {capture.evidence.node: capture.evidence for capture in captured})
    return {name: evaluate(node_checks()[check], node) for name, node in known.items()}


def verdicts_of(check: str, text: str, folder: Path, name: str = "x.txt") -> dict[str, Verdict]:
    """A check's findings on each node of a one-file capture."""
    path = written(folder, **{name: text}) / name
    return {name: result.verdict for name, result in results(check, path).items()}


def messages_about(path: Path) -> list[str]:
    """The messages about a capture that is not recognised."""
    return not_understood(read_capture(path, resolve(f"capture:{path}"), collector_names()))


def not_a_row(line: str) -> str:
    """The message about a row of sinfo that is not recognised."""
    expected = "a state of nodes or a reason, and names such as gpu[001-016,020]"
    return f"sinfo's row {line!r} is not understood; expected {expected}"
