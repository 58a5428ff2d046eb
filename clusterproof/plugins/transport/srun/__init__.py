"""Reaches nodes with one srun, from a host that has Slurm's commands.

This module runs programs on that host (here, over ssh, through SSM), and asks what Slurm reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clusterproof.plugins.agent.frame import FrameError, printable, unpacked
from clusterproof.plugins.agent.payload import program
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Collected, Status, Unreached
from clusterproof.plugins.transport import Answer, Limits, Program, Unusable, connection_for
from clusterproof.plugins.transport.gather import evidence_of

SETTING = "submit_host"  # `local`, `ssh:[user@]HOST[:port]` or `hyperpod:ADDRESS`
COLLECTOR, JOBS = "slurm", "slurm_jobs"
ASKED_BY = Path(__file__).parents[2] / "evidence" / "slurm"
COLLECTOR_S = 30.0  # slurmctld answers slowly when many jobs start


@dataclass(frozen=True, slots=True)
class SubmitHost:
    """The submit host, and the connection that reaches it."""

    connection: str
    target: Target

    def __str__(self) -> str:
        return "this host" if self.connection == "local" else self.target.name


def submit_host(settings: Mapping[str, str]) -> SubmitHost:
    """The host that a cluster's settings name; this machine if they name none."""
    connection, _, address = settings.get(SETTING, "local").partition(":")
    if connection != "ssh":
        return SubmitHost(connection, Target(address or "local", address))
    user, _, host_port = address.rpartition("@")
    host, _, port = host_port.partition(":")
    return SubmitHost("ssh", Target(host, user=user, port=int(port or 0)))


def run_on_host(host: SubmitHost, program: Program, limits: Limits) -> Answer:
    """Run one program there once."""
    answers: list[Answer] = []
    single = replace(limits, fanout=1)
    connection_for(host.connection).run([host.target], program, single, lambda _, answer: answers.append(answer))
    return answers[0] if answers else Answer(unreached=Unreached.LOST, detail="no answer")


def ask_submit_host(host: SubmitHost, program: Program, nonce: str, limits: Limits) -> dict[str, Any]:
    """Run one of our programs there and return its answer. Raises Unusable for none, or for an error for all nodes."""
    answer = run_on_host(host, program, limits)
    try:
        fields = unpacked(answer.output, nonce)
    except FrameError as problem:
        why = answer.detail or str(problem)
        raise Unusable(f"{host}: {why}; expected Slurm's commands and Python 3.8 there") from None
    except ValueError as problem:
        raise formless(host, problem) from None
    if "wrong" in fields:
        wrong = printable(str(fields["wrong"]))
        raise Unusable(f"{host}: {wrong}; expected a host of the cluster where srun and scontrol work")
    return fields


def formless(host: SubmitHost, problem: Exception) -> Unusable:
    """The message for an answer that is not from our program."""
    return Unusable(
        f"{host}: its answer does not have its form: {printable(repr(problem))}; expected that of our program"
    )


def ask_slurm(host: SubmitHost, limits: Limits, collectors: tuple[str, ...] = (COLLECTOR,)) -> dict[str, Collected]:
    """Slurm's answers, from one round trip to the host; if the host is not reached, every answer has status broke."""
    on_stdin = connection_for(host.connection).takes_stdin
    to_run = program(
        collectors,
        ProbeOptions(collector_s=COLLECTOR_S),
        tuple(ASKED_BY / f"{collector}.py" for collector in collectors),
        on_stdin,
    )
    answer = run_on_host(host, to_run, replace(limits, answer_s=2 * COLLECTOR_S))
    evidence = evidence_of(Target(COLLECTOR), answer, to_run.nonce)
    why = (
        f"{evidence.unreached.value.replace('_', ' ')}: {evidence.detail}"
        if evidence.unreached
        else "it was not answered"
    )
    broke = Collected(Status.BROKE, detail=f"{host}: {why}")
    return {collector: evidence.collectors.get(collector, broke) for collector in collectors}
