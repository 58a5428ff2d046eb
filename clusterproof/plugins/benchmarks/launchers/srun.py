"""Runs ranks, or two ends, as steps of one Slurm job with all the nodes: each round is one visit to the submit host."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusterproof.plugins.agent.frame import printable
from clusterproof.plugins.agent.payload import calling_main, joined, new_nonce, started_by_shell
from clusterproof.plugins.benchmarks.launchers import (
    FOLDER,
    PLUGINS,
    Launcher,
    Measured,
    MeterCampaign,
    PairOrGroup,
    attributed,
    check_settings,
    pmi,
    typed,
)
from clusterproof.plugins.benchmarks.launchers.client_server import reading_of, requests_of
from clusterproof.plugins.benchmarks.launchers.ranks import merged, rank_shell, with_advice
from clusterproof.plugins.benchmarks.launchers.visit import (
    ENDS_S,
    MAX_BYTES,
    TRAVELS,
    NodeAnswer,
    nodes_by_reason,
    not_reached,
    output_of,
    read,
    silenced,
)
from clusterproof.plugins.evidence.pairs import Failure, Reading
from clusterproof.plugins.transport import Answer, Unusable, connection_for
from clusterproof.plugins.transport.srun import ask_submit_host, formless, submit_host
from clusterproof.plugins.transport.srun.connection import WAIT_S

ASK_S = 30.0  # for Slurm's own commands: slurmctld answers slowly when many jobs start
CLEANUP_S = 15.0  # for a step that only cleans up
_TRAVELS = (
    PLUGINS / "agent" / "packing.py",
    PLUGINS / "agent" / "pattern.py",
    PLUGINS / "agent" / "sending.py",
    PLUGINS / "transport" / "srun" / "places.py",
    FOLDER / "pipes.py",
    FOLDER / "allocation.py",
    FOLDER / "on_submit_host.py",
)
_TEXT = "@TEXT@"  # on_submit_host replaces it with a node's program
ONLY_THE_FIRST: Mapping[str, Any] = {"mpi": pmi.NONE, "others_s": 0}  # settings until ranks are needed


@dataclass(frozen=True, slots=True)
class Reserved:
    """The job with the nodes; `addresses` are the names or addresses by which a node is reached from others.

    `mpi` is how ranks find each other, among the types that Slurm supports.
    """

    job: str
    is_ours: bool
    refused: Mapping[str, str]
    addresses: Mapping[str, Sequence[str]]
    mpi: str = pmi.NONE
    has_mpi: tuple[str, ...] = ()


@dataclass(slots=True)
class BySrun(Launcher):
    """Measures in one job: that of `slurm:job:ID`, or its own for all the nodes of the cluster."""

    campaign: MeterCampaign
    _name: str = field(default_factory=lambda: f"clusterproof-{new_nonce()}")
    _reserved: Reserved | None = None

    def measure(self, together: Sequence[PairOrGroup], measured: Measured) -> None:
        """Measure all these at the same time. Raises Unusable if Slurm allocates no node at all."""
        reserved = self._reserved = self._reserved or self._reserve()
        turns = {}
        for number, each in enumerate(together):
            refused = {node: NodeAnswer(reserved.refused[node]) for node in each if node in reserved.refused}
            if refused:
                measured(each, replace(not_reached(refused), failure=Failure.NOT_AT_FAULT))
            else:
                turns[str(number)] = (each, new_nonce())
        if not turns:
            return
        node_nonce = new_nonce()
        try:
            answered = self._request(
                self._round(turns, reserved, node_nonce), self.campaign.run_s + ENDS_S + CLEANUP_S + ASK_S
            )
        except Unusable as problem:
            for each, _ in turns.values():
                measured(each, Reading(problem=str(problem), failure=Failure.NOT_AT_FAULT))
            return
        for key, (each, run) in turns.items():
            try:
                reading = self._reading(key, each, run, answered, node_nonce, reserved)
            except Exception as problem:  # a bug of ours or of a meter costs one measurement
                reading = Reading(problem=printable(f"{type(problem).__name__}: {problem}"))
            measured(each, typed(self.campaign, reading, self._launch_by_hand(each, reserved), each))

    def close(self) -> None:
        """Release the nodes."""
        reserved, self._reserved = self._reserved, None
        if reserved and reserved.is_ours:
            self._request({"do": "release", "job": reserved.job}, ASK_S)

    @property
    def _settings(self) -> Mapping[str, str]:
        return {**self.campaign.cluster.settings, **self.campaign.limits.settings}

    @property
    def _options(self) -> list[str]:
        return shlex.split(self._settings.get("srun_options", ""))

    def _reserve(self) -> Reserved:
        """Find or start the job that has the nodes. Raises Unusable."""
        wait_s = float(self._settings.get("slurm_wait") or WAIT_S)
        name = self.campaign.cluster.name
        request = {
            "do": "reserve",
            "name": self._name,
            "names": [target.name for target in self.campaign.cluster.targets],
            "job": name.removeprefix("slurm:job:") if name.startswith("slurm:job:") else "",
            "partition": self._settings.get("partition", ""),
            "options": self._options,
            "wait_s": wait_s,
            "minutes": math.ceil(self.campaign.whole_s / 60) + 1,
        }
        answered = self._request(request, 2 * wait_s + 2 * ASK_S)
        try:
            refused = {str(node): printable(str(why)) for node, why in answered["refused"].items()}
            addresses = {str(node): tuple(map(str, names)) for node, names in answered["addresses"].items()}
            job, is_ours = str(answered["job"]), answered["is_ours"] is True
            site, has_mpi = pmi.default(str(answered["mpi"]["config"])), pmi.listed(str(answered["mpi"]["listed"]))
        except (KeyError, TypeError, AttributeError) as problem:
            raise formless(submit_host(self._settings), problem) from None
        if not job:
            reasons = "; ".join(f"{nodes}: {why}" for why, nodes in nodes_by_reason(refused).items())
            raise Unusable(
                f"Slurm gives none of the nodes: {reasons:.400}; expected some within --slurm-wait {wait_s:g}"
            )
        return Reserved(job, is_ours, refused, addresses, pmi.chosen(self._options, site, has_mpi), has_mpi)

    def _round(self, turns: Mapping[str, tuple[PairOrGroup, str]], reserved: Reserved, nonce: str) -> dict[str, object]:
        steps = [step for key, turn in turns.items() for step in self._steps(key, *turn, reserved)]
        return {
            "do": "run",
            "name": self._name,
            "job": reserved.job,
            "is_ours": reserved.is_ours,
            "options": self._options,
            "most_bytes": 2 * MAX_BYTES,
            "steps": steps,
            "program": {
                "source": joined(TRAVELS),
                "shell": started_by_shell(_TEXT, nonce, sudo=False, on_stdin=False).command,
            },
        }

    def _steps(self, key: str, nodes: PairOrGroup, run: str, reserved: Reserved) -> list[dict[str, object]]:
        """The steps of one pair or group, each with its cleanup steps in case of failure."""
        campaign = self.campaign
        cleanups = {
            node: _step(f"{key}.{node}", [node], visit={"clean_up": [run]}, deadline_s=CLEANUP_S) for node in nodes
        }
        if campaign.meter.is_collective:
            shell, tasks = rank_shell(campaign, run), campaign.ranks_per_node
            ranks = ONLY_THE_FIRST if campaign.meter.starts_ranks else {"mpi": reserved.mpi}
            step = _step(key, list(nodes), tasks, shell=shell, deadline_s=campaign.run_s, **ranks)
            return [{**step, "cleanups": list(cleanups.values())}]
        a, b = nodes
        requests = requests_of(campaign, run, nodes, reserved.addresses)
        timeout_s = campaign.run_s + ENDS_S
        return [
            _step(f"{key}.{end}", [node], visit=dict(requests[node]), deadline_s=timeout_s, cleanups=[cleanups[node]])
            for end, node in (("server", a), ("client", b))
        ]

    def _reading(
        self,
        key: str,
        nodes: PairOrGroup,
        run: str,
        answered: Mapping[str, Any],
        nonce: str,
        reserved: Reserved,
    ) -> Reading:
        """The reading from the steps of one pair or group; a node on which nothing starts any more is at fault."""
        if self.campaign.meter.is_collective:
            step = answered["steps"][key]
            reading = self._of_ranks(nodes, run, step, reserved)
            if not_started := _not_started(nodes, step, reading, reserved):
                return not_started
        else:
            a, b = nodes
            steps = {a: answered["steps"][f"{key}.server"], b: answered["steps"][f"{key}.client"]}
            answers = {node: _answer(step, nonce) or NodeAnswer() for node, step in steps.items()}
            reading = reading_of(self.campaign, nodes, answers)
            seconds = max(float(step["seconds"]) for step in steps.values())
            reading = replace(reading, seconds=reading.seconds or seconds)
        cleaned = {node: _answer(answered["cleaned"].get(f"{key}.{node}"), nonce) for node in nodes}
        silent = {node: answer for node, answer in cleaned.items() if answer and answer.unreached}
        return silenced(reading, silent, nodes)

    def _of_ranks(self, nodes: PairOrGroup, run: str, step: Mapping[str, Any], reserved: Reserved) -> Reading:
        """The reading from a step with all ranks."""
        output = output_of(step)
        reading = self.campaign.meter.read(self.campaign.settings, (merged(output, run),))
        if reading.failure is Failure.APART:
            reading = with_advice(reading, pmi.advice(reserved.mpi, reserved.has_mpi))
        called = {node: reserved.addresses.get(node, ()) for node in nodes}
        reading = attributed(reading, called, output.exit is None)
        return replace(reading, seconds=reading.seconds or output.seconds)

    def _launch_by_hand(self, together: PairOrGroup, reserved: Reserved) -> str:
        """How a person starts the ranks of a pair or group: in the same job, if it continues to exist."""
        ranks = self.campaign.ranks_per_node
        job = [] if reserved.is_ours else [f"--jobid={reserved.job}", "--overlap"]
        names = tuple(together)
        nodes = [f"--nodelist={','.join(names)}", f"--nodes={len(names)}"]
        tasks = [f"--ntasks={len(names) * ranks}", f"--ntasks-per-node={ranks}", f"--mpi={reserved.mpi}"]
        return shlex.join(["srun", *job, *nodes, *tasks, *self._options])

    def _request(self, request: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """Send one request to the submit host. Raises Unusable."""
        host = submit_host(self._settings)
        nonce = new_nonce()
        text, on_stdin = calling_main(_TRAVELS, dict(request)), connection_for(host.connection).takes_stdin
        program = started_by_shell(text, nonce, sudo=False, on_stdin=on_stdin)
        return ask_submit_host(host, program, nonce, replace(self.campaign.limits, answer_s=timeout_s))


def srun(campaign: MeterCampaign) -> BySrun:
    """The launcher that uses Slurm steps. Raises Unusable for invalid settings of the meter."""
    check_settings(campaign)
    return BySrun(campaign)


def _not_started(nodes: PairOrGroup, step: Mapping[str, Any], reading: Reading, reserved: Reserved) -> Reading | None:
    """Why srun did not start the ranks, as it says itself: the same text from a rank is no evidence."""
    own, seconds = "\n".join(map(str, step["own"])), float(step["seconds"])
    if pmi.is_without_library(reserved.mpi, own, list(nodes)):
        advice = pmi.advice_without_library(reserved.has_mpi)
        return Reading(problem=f"srun started no rank: {advice}", seconds=seconds)
    launched = pmi.NOT_LAUNCHED.search(own)
    if launched and launched[1] in set(nodes) and reading.busbw_gb_per_s is None:
        is_alone = len({node for node, _ in pmi.NOT_LAUNCHED.findall(own)}) == 1
        problem, culprit = f"srun: {printable(launched[0])}", launched[1] if is_alone else ""
        return Reading(problem=problem, culprit=culprit, seconds=seconds)
    return None


def _step(key: str, nodes: list[str], tasks: int = 1, **more: object) -> dict[str, object]:
    return {"key": key, "nodes": nodes, "tasks": tasks, "cleanups": [], **more}


def _answer(step: Mapping[str, Any] | None, nonce: str) -> NodeAnswer | None:
    """The answer of the program on a node in a step; or srun's reason for having none."""
    if step is None:
        return None
    answer = read(Answer(str(step["text"]).encode()), nonce)
    if not answer.unreached:
        return answer
    errors = [line.partition("error:")[2].strip() for line in map(str, step["own"]) if "error:" in line]
    return NodeAnswer(
        unreached=printable(f"srun: {errors[0]}") if errors else f"no answer within {step['seconds']:.0f} s"
    )
