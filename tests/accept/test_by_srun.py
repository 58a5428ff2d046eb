"""`clusterproof accept slurm:gpu` on a real Slurm: runs by srun are killed and resumed like those by ssh."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.builders.wheel import ROOT
from tests.testbed.faults import with_kernel_line
from tests.testbed.needs import needs_slurm
from tests.testbed.node import healthy_p5
from tests.testbed.slurm import slurm

NAMES = ("gpu001", "gpu002", "gpu003")
PLAN = 'stages = ["inventory"]\n[bought]\nnodes = 3\nexpect = { gpus = 8 }\n'
XID = "NVRM: Xid (PCI:0000:53:00): 79, pid=12, name=python, GPU has fallen off the bus."
CODE = "import sys; from clusterproof.plugins.command_line.main import main; sys.exit(main(sys.argv[1:]))"
KILLED = "timeout -s KILL 20 "  # wherever it has got to by then


@needs_slurm
def test_the_broken_node_alone_is_rejected_by_runs_of_srun() -> None:
    images = {name: healthy_p5(name) for name in NAMES}
    images["gpu002"] = with_kernel_line(images["gpu002"], XID)
    with slurm(images) as bed, TemporaryDirectory(dir="/tmp") as folder:  # the controller sees this folder
        (Path(folder) / "plan.toml").write_text(PLAN)
        into = Path(folder) / "into"
        arguments = f"accept slurm:gpu --plan {folder}/plan.toml --into {into}"
        typed = f"{sys.executable} -c '{CODE}' {arguments}"
        bed.run("sh", "-c", f"cd {ROOT} && {KILLED}{typed}")
        ran = bed.run("sh", "-c", f"cd {ROOT} && exec {typed}", timeout=1800.0)
        output = (ran.stdout + ran.stderr).decode()
        assert ran.returncode == 1, output
        report = json.loads((bed.controller.root / f"{into}/acceptance.json".lstrip("/")).read_text())
    due = dict.fromkeys(NAMES, "accepted") | {"gpu002": "rejected"}
    assert {row["node"]: row["said"] for row in report["nodes"]} == due, output
    assert all(run["command"][2] == "slurm:gpu" for run in report["runs"]), output
