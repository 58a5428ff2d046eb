"""A host where Slurm's commands are, and how a program runs there: here, over ssh, or through Systems Manager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clusterproof.plugins.agent.frame import FrameError, printable, unpacked
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import Answer, Limits, Program, Unusable
from clusterproof.plugins.transport.direct import DIRECT

SETTING = "submit_host"  # `local`, `ssh:[user@]HOST[:port]` or `hyperpod:ADDRESS`


@dataclass(frozen=True, slots=True)
class SubmitHost:
    """The connection that reaches it, and where it is."""

    connection: str
    target: Target

    def __str__(self) -> str:
        return "this host" if self.connection == "local" else self.target.name


def submit_host(settings: Mapping[str, str]) -> SubmitHost:
    """The host that a cluster's settings name; this one where they name none."""
    connection, _, address = settings.get(SETTING, "local").partition(":")
    if connection != "ssh":
        return SubmitHost(connection, Target(address or "local", address))
    user, _, host_port = address.rpartition("@")
    host, _, port = host_port.partition(":")
    return SubmitHost("ssh", Target(host, user=user, port=int(port or 0)))


def ask(host: SubmitHost, program: Program, limits: Limits) -> Answer:
    """Run one program there, once."""
    answers: list[Answer] = []
    one = replace(limits, fanout=1)
    DIRECT[host.connection]().run([host.target], program, one, lambda _, answer: answers.append(answer))
    return answers[0] if answers else Answer(unreached=Unreached.LOST, detail="no answer")


def ask_submit_host(host: SubmitHost, program: Program, nonce: str, limits: Limits) -> dict[str, Any]:
    """What a program of ours returns there. Raises Unusable where it returns nothing, or an error for all."""
    answer = ask(host, program, limits)
    try:
        data = unpacked(answer.output, nonce)
    except FrameError as problem:
        why = answer.detail or str(problem)
        raise Unusable(f"{host}: {why}; expected Slurm's commands and Python 3.8 there") from None
    except ValueError as problem:
        raise formless(host, problem) from None
    if "wrong" in data:
        words = printable(str(data["wrong"]))
        raise Unusable(f"{host}: {words}; expected a host of the cluster where srun and scontrol work")
    return data


def formless(host: SubmitHost, problem: Exception) -> Unusable:
    """The message for an answer that is not our program's."""
    return Unusable(
        f"{host}: its answer does not have its form: {printable(repr(problem))}; expected that of our program"
    )
