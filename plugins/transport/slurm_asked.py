"""What Slurm tells of a cluster: the leaf `slurm`, read where its commands are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clusterproof.plugins.agent.options import ProbeOptions
from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Leaf, Status
from clusterproof.plugins.transport import Limits, connection_for
from clusterproof.plugins.transport.gather import evidence_of
from clusterproof.plugins.transport.submit_host import SubmitHost, ask

LEAF, JOBS = "slurm", "slurm_jobs"
ASKED_BY = Path(__file__).parents[1] / "evidence" / "slurm"
LEAF_S = 30.0  # slurmctld answers slowly when many jobs start


def ask_slurm(host: SubmitHost, limits: Limits, leaves: tuple[str, ...] = (LEAF,)) -> dict[str, Leaf]:
    """Slurm's answers, from one round trip to a host; where that is not reached, every answer broke."""
    on_stdin = getattr(connection_for(host.connection), "takes_stdin", True)
    to_run, nonce = program(
        leaves, ProbeOptions(leaf_s=LEAF_S), tuple(ASKED_BY / f"{leaf}.py" for leaf in leaves), on_stdin
    )
    answer = ask(host, to_run, replace(limits, answer_s=2 * LEAF_S))
    told = evidence_of(Target(LEAF), answer, nonce)
    why = f"{told.unreached.value.replace('_', ' ')}: {told.detail}" if told.unreached else "it was not answered"
    broke = Leaf(Status.BROKE, detail=f"{host}: {why}")
    return {leaf: told.leaves.get(leaf, broke) for leaf in leaves}
