"""What Slurm reports of a cluster: the collector `slurm`, read where its commands are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from clusterproof.plugins.agent.options import ProbeOptions
from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, Status
from clusterproof.plugins.transport import Limits
from clusterproof.plugins.transport.direct import DIRECT
from clusterproof.plugins.transport.gather import evidence_of
from clusterproof.plugins.transport.submit_host import SubmitHost, ask

COLLECTOR, JOBS = "slurm", "slurm_jobs"
ASKED_BY = Path(__file__).parents[1] / "evidence" / "slurm"
COLLECTOR_S = 30.0  # slurmctld answers slowly when many jobs start


def ask_slurm(host: SubmitHost, limits: Limits, collectors: tuple[str, ...] = (COLLECTOR,)) -> dict[str, Collected]:
    """Slurm's answers, from one round trip to a host; where that is not reached, every answer broke."""
    on_stdin = getattr(DIRECT[host.connection](), "takes_stdin", True)
    to_run, nonce = program(
        collectors,
        ProbeOptions(collector_s=COLLECTOR_S),
        tuple(ASKED_BY / f"{collector}.py" for collector in collectors),
        on_stdin,
    )
    answer = ask(host, to_run, replace(limits, answer_s=2 * COLLECTOR_S))
    data = evidence_of(Target(COLLECTOR), answer, nonce)
    why = f"{data.unreached.value.replace('_', ' ')}: {data.detail}" if data.unreached else "it was not answered"
    broke = Collected(Status.BROKE, detail=f"{host}: {why}")
    return {collector: data.collectors.get(collector, broke) for collector in collectors}
