"""A fake node with the scripts and their settings, without a Slurm, and what they logged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.integrations.slurm.earlier_runs import leave_cache, with_imports
from tests.integrations.slurm.scripts import BUDGET, DRAIN, SCRIPTS, SETTINGS, STATE, drain_budget
from tests.testbed.image import Content, Link, NodeImage
from tests.testbed.node import Node, entered, with_file, with_whole_machine


@contextmanager
def node(
    image: NodeImage, toml: str = DRAIN, python: str = sys.prefix, *, is_first_run: bool = False
) -> Iterator[Node]:
    """A node with these settings, and with clusterproof where the scripts look for it; it has run there before."""
    added: dict[str, Content] = {
        SETTINGS: toml,
        "/opt/clusterproof": Link(python),
        BUDGET: image.files.get(BUDGET, drain_budget),
    }
    for path, content in added.items():
        image = with_file(image, path, content)
    image = with_whole_machine(image)
    with entered(image if is_first_run else with_imports(image), "gpu001") as running:
        if not is_first_run:
            leave_cache(running)
        yield running


def script(running: Node, name: str = "prolog", job: str = "42") -> subprocess.CompletedProcess[bytes]:
    return running.run([str(SCRIPTS / f"clusterproof-{name}")], env={"SLURM_JOB_ID": job, "SLURMD_NODENAME": "gpu001"})


def state(running: Node, name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((running.root / STATE / f"{name}.json").read_text())
    return content


def output_of(ran: subprocess.CompletedProcess[bytes]) -> str:
    return ran.stderr.decode()
