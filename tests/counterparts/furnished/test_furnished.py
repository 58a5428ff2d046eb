"""This machine with software that users install: fake nodes show the same faults, and no others."""

from __future__ import annotations

import json
import subprocess

from tests.builders.wheel import ROOT
from tests.counterparts import installed
from tests.testbed.needs import needs_frozen

pytestmark = [needs_frozen, installed.needs("furnished")]
SERVICES = "chronyd containerd dockerd munged slurmctld slurmd"
HAS_TORCH = "import torch; assert torch.__version__; print('torch')"


def output_of(*command: str) -> list[str]:
    """The lines that a command prints there."""
    ran = subprocess.run([ROOT / "scripts/furnished", *command], capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


def test_the_services_run_and_pytorch_is_there() -> None:
    script = f'for one in {SERVICES}; do pidof "$one" >/dev/null && echo "$one"; done; /usr/bin/python3 -c "$0"'
    assert output_of("/bin/sh", "-c", script, HAS_TORCH) == [*SERVICES.split(), "torch"]


def test_nothing_that_is_written_there_stays() -> None:
    assert output_of("/bin/sh", "-c", "echo kept >/opt/written; cat /opt/written") == ["kept"]
    assert output_of("/bin/sh", "-c", "cat /opt/written || echo none") == ["none"]


def test_faults_of_a_load_are_found_beside_programs_that_load() -> None:
    summary = json.loads(output_of("scripts/faults", "load: a GPU that")[-1])
    assert summary["faults"] > 3
    assert (summary["missed"], summary["false"]) == (0, 0)
