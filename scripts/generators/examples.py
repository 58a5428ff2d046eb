"""Collects an example of each check's finding for `clusterproof explain`, from the demo cluster or else a fault."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import EXAMPLES, all_checks
from clusterproof.plugins.evaluation.rules import rules
from clusterproof.reports.results import read_results
from tests.checks.control_plane.kubernetes_node_faults import NODE_FAULTS
from tests.checks.control_plane.kubernetes_pod_faults import POD_FAULTS
from tests.checks.control_plane.kubernetes_storage_faults import STORAGE_FAULTS
from tests.checks.control_plane.slurm_faults import SLURM_FAULTS
from tests.faults import ALL_FAULTS
from tests.training_run.faults import FAULTS as RUN_FAULTS

_COMPARED = "; expected as on most nodes of its group"
FINDINGS = (Verdict.FAIL, Verdict.CONCERN)  # preferred first
LONGEST = 260  # characters
ROOT = Path(__file__).parents[2]


def document() -> str:
    """The file, with a line for each check that has an example."""
    known = all_checks()
    messages = {**dict(_of_faults()), **dict(_of_demo())}
    examples = {name: messages[name] for name in sorted(messages) if name in known}
    return json.dumps(examples, indent=0, ensure_ascii=False) + "\n"


def _of_faults() -> Iterator[tuple[str, str]]:
    """Only whole messages; a check's later message replaces its earlier one, so that of a fail stands."""
    faults = [*ALL_FAULTS, *RUN_FAULTS, *NODE_FAULTS, *POD_FAULTS, *STORAGE_FAULTS, *SLURM_FAULTS]
    for verdict in reversed(FINDINGS):
        for fault in reversed(faults):
            named = next(iter(fault.expect), "")
            name = named if "." in named else f"control_plane.{named}"
            if named and fault.expect[named] is verdict and is_whole(name, fault.words):
                yield name, fault.words


def is_whole(name: str, message: str) -> bool:
    """Whether these words are a complete message of the check, not the end of one, as a fault may require."""
    if "; expected " not in message or len(message) > LONGEST or not (message[0].isalnum() or message[0] == "/"):
        return False
    sentences = [rule.sentence for rule in rules(all_checks()[name].function)] if name in all_checks() else []
    return any(re.fullmatch(_pattern(sentence), message) for sentence in sentences)


def _pattern(sentence: str) -> str:
    """A pattern for a sentence of `rules`, which may begin with a device, a node or a process."""
    if sentence.endswith(_COMPARED):
        return ".+; expected .+ as on [0-9]+ of [0-9]+ nodes"
    return f"(?:.+: )?{'.+' * sentence.startswith('…')}{'.*'.join(map(re.escape, sentence.split('…')))}"


def _of_demo() -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.jsonl"
        arguments = ["-m", "pytest", "--cluster", "demo", "--no-report", "-q", "-p", "no:cacheprovider"]
        command = [sys.executable, *arguments, "--results", str(results)]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)  # it exits with 1: nodes are sick
        for verdict in reversed(FINDINGS):
            for result in reversed(read_results(results)):
                line = result.message.partition("\n")[0]
                if result.verdict is verdict and not result.is_of_unreachable and len(line) <= LONGEST:
                    yield result.check, line


if __name__ == "__main__":
    Path(EXAMPLES).write_text(document(), encoding="utf-8")
