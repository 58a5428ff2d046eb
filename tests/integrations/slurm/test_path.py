"""Where the scripts look for Slurm's commands."""

from __future__ import annotations

import subprocess

import pytest

from clusterproof.integrations.slurm import versions
from clusterproof.plugins.evidence.slurm import slurm
from clusterproof.plugins.transport.srun import places
from tests.integrations.slurm.scripts import SCRIPTS


@pytest.mark.parametrize("name", ["prolog", "epilog", "health-check", "case"])
def test_a_script_finds_slurm_wherever_a_run_does_and_looks_at_shared_disks_last(name: str) -> None:
    script = (SCRIPTS / f"clusterproof-{name}").read_text(encoding="utf-8")
    own = "\n".join(line for line in script.splitlines() if line.startswith("PATH="))
    path = subprocess.run(["/bin/sh", "-c", f"{own}\necho $PATH"], capture_output=True, text=True, check=True).stdout
    folders = path.strip().split(":")
    assert set(places.FOLDERS.split(":")) <= set(folders)
    assert tuple(folders[-3:]) == slurm.ELSEWHERE
    assert path.strip() == versions.PATH
