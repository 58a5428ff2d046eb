"""Slurm's own fan-out: one srun starts the program on all nodes; a watch runs one per node, as a step of its job."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from clusterproof.plugins.agent.frame import printable
from clusterproof.plugins.agent.packing import script_of
from clusterproof.plugins.agent.payload import calling_main, new_nonce, started_by_shell, unpacked
from clusterproof.plugins.core.cluster import InventoryError, Target
from clusterproof.plugins.core.evidence import Unreached
from clusterproof.plugins.transport import (
    Answer,
    Connection,
    Limits,
    NodeSession,
    Program,
    Received,
    SessionPerNode,
    Unusable,
    begins_container,
    connection_for,
    sessions_for,
)
from clusterproof.plugins.transport.srun import SubmitHost, ask_submit_host, formless, submit_host
from clusterproof.plugins.transport.srun.places import FOLDERS, KEPT_VARIABLES

WAIT_S = 15.0  # for nodes that others use; --slurm-wait
END_S = 20.0  # in addition to the program itself: to ask Slurm about the nodes, and to end srun
LONGEST_PROGRAM = 900_000  # characters: Slurm refuses a command line of more than 1 MiB (max_submit_line_size)
LAUNCH_CHARACTERS = 7_800  # by which the submit host's program is at most longer, without a user's options
SPARE_CHARACTERS = 5_450  # room that a submit host needs besides its program: Systems Manager takes 65,535 in all
NODE_BYTES = 256 * 1024  # of one node's answer; a healthy 8-GPU node returns about 20 kB
BESIDE_BYTES = 1024 * 1024
FOLDER = Path(__file__).parent
TRAVELS = (
    *(FOLDER.parents[1] / "agent" / f"{name}.py" for name in ("packing", "pattern", "sending")),
    *(FOLDER / f"{name}.py" for name in ("places", "call", "launch")),
)
_WHY = {
    "unknown": Unreached.NAME,
    "busy": Unreached.BUSY,
    "drained": Unreached.DRAINED,
    "down": Unreached.DOWN,
    "failed": Unreached.LOST,
    "another": Unreached.GARBLED,
    "unstarted": Unreached.BUSY,
}
UNSTARTED = "; expected an srun that starts on nodes (--srun-options)"
_ELSEWHERE = (Unreached.NAME, Unreached.BUSY, Unreached.DRAINED, Unreached.DOWN, Unreached.LOST)


class Srun(Connection):
    """Runs the program by srun. A target's name is Slurm's own name of the node.

    Settings: `submit_host` (see `submit_host`), `partition`, `slurm_wait`, `srun_options`, `job`: one of this user's
    jobs, whose nodes are visited in steps of it, and `beside`: the connection for nodes on which Slurm starts
    nothing.
    """

    takes_stdin = False

    def longest_program(self, limits: Limits) -> int:
        """The least that srun, the submit host's connection, and `beside` accept."""
        other_connection = limits.settings.get("beside", "local")
        there = _longest_there(submit_host(limits.settings), limits)
        chosen = sum(len(limits.settings.get(name, "")) for name in ("partition", "srun_options", JOB))
        launched = None if there is None else there + SPARE_CHARACTERS - LAUNCH_CHARACTERS - 2 * chosen
        taken = [LONGEST_PROGRAM, launched, connection_for(other_connection).longest_program(limits)]
        return min(longest for longest in taken if longest is not None)

    def run(
        self,
        targets: Sequence[Target],
        program: Program,
        limits: Limits,
        answered: Callable[[Target, Answer], None],
    ) -> None:
        """Run `program` once on each target. Raises Unusable if Slurm cannot be asked."""
        outcomes = _launched([target.name for target in targets], program, limits)
        settings = limits.settings
        has_other_connection = "beside" in settings and not begins_container(settings.get("srun_options", ""))
        unstarted = list(filter(_is_unstarted, outcomes.values()))
        if unstarted and len(unstarted) == len(outcomes) and not has_other_connection:
            raise Unusable(f"{submit_host(settings)}: {_answer(unstarted[0]).detail}")
        elsewhere: dict[str, Answer] = {}  # by srun, of nodes that the other connection may still reach
        for target in targets:
            answer = _answer(outcomes.get(target.name))
            if answer.unreached in _ELSEWHERE and has_other_connection:
                elsewhere[target.name] = answer
            else:
                answered(target, answer)
        if elsewhere:
            rest = [target for target in targets if target.name in elsewhere]
            _by_other_connection(rest, program, limits, elsewhere, answered, is_any_answered=len(rest) < len(targets))


def _by_other_connection(
    targets: Sequence[Target],
    program: Program,
    limits: Limits,
    by_srun: dict[str, Answer],
    answered: Callable[[Target, Answer], None],
    *,
    is_any_answered: bool,
) -> None:
    """Visit nodes on which Slurm starts nothing. Raises Unusable and InventoryError, unless others have answered."""
    name = limits.settings["beside"]
    connection = connection_for(name)

    def note(target: Target, answer: Answer) -> None:
        del by_srun[target.name]
        answered(target, answer)

    try:
        connection.run(targets, _on_stdin(program) if connection.takes_stdin else program, limits, note)
    except (Unusable, InventoryError) as problem:
        if not is_any_answered:
            raise
        for target in targets:
            if target.name in by_srun:
                answer = by_srun[target.name]
                answered(target, replace(answer, detail=f"{answer.detail}; by {name}: {problem}"))


def _launched(names: Sequence[str], program: Program, limits: Limits) -> Mapping[str, Any]:
    """What the submit host reports for each node. Raises Unusable."""
    settings = limits.settings
    wait_s = float(settings.get("slurm_wait") or WAIT_S)
    whole_s = 2 * wait_s + limits.answer_s  # twice: for all nodes together, then for each alone
    nonce = new_nonce()
    request = {
        "name": f"clusterproof-{nonce}",
        "names": list(names),
        "partition": settings.get("partition", ""),
        "job": settings.get("job", ""),
        "options": shlex.split(settings.get("srun_options", "")),
        "wait_s": wait_s,
        "minutes": math.ceil(limits.answer_s / 60) + 1,
        "whole_s": whole_s,
        "mark": f"{nonce}:node:",
        "end": ":end:",
        "most_bytes": NODE_BYTES,
        "command": program.command,
    }
    host = submit_host(settings)
    longer = replace(limits, answer_s=whole_s + END_S, answer_bytes=BESIDE_BYTES + NODE_BYTES * len(names))
    to_run = launch_program(request, nonce, connection_for(host.connection).takes_stdin, _longest_there(host, limits))
    launched = ask_submit_host(host, to_run, nonce, longer)
    if not isinstance(launched.get("nodes"), dict):
        raise formless(host, ValueError("it names no nodes"))
    return launched["nodes"]  # type: ignore[no-any-return]


def _longest_there(host: SubmitHost, limits: Limits) -> int | None:
    return connection_for(host.connection).longest_program(limits)


def launch_program(request: Mapping[str, object], nonce: str, on_stdin: bool, longest: int | None) -> Program:
    """The program for the submit host; if there is no room for the nodes' names, it starts on all nodes that Slurm has.

    `longest` is for the node's program. Raises Unusable if this one is still too large.
    """
    most = longest + SPARE_CHARACTERS if longest else None
    parts = unpacked(str(request["command"]))
    for candidate in ({**request, "command": parts}, {**request, "command": parts, "names": []}):
        made = started_by_shell(calling_main(TRAVELS, candidate), nonce, sudo=False, on_stdin=on_stdin)
        size = len(made.command) + len(made.stdin)
        if most is None or size <= most:
            return made
    raise Unusable(
        f"the program for srun has {size} characters; expected at most {most}: with fewer collectors (-k, -m), or "
        "--via nodes"
    )


def _on_stdin(program: Program) -> Program:
    """The program as a script on standard input, if it is too long for a shell's argument."""
    script = script_of(program.command)
    is_short = script == program.command
    return program if is_short else replace(program, command="/bin/sh -s", stdin=f"{script}\n".encode())


def _answer(outcome: object) -> Answer:
    """What one node answered, or Slurm's reason why it did not."""
    if not isinstance(outcome, dict):
        return Answer(unreached=Unreached.LOST, detail="the submit host said nothing about it")
    if isinstance(output := outcome.get("output"), str):
        return Answer(output.encode("latin-1", "replace"))
    why, detail = str(outcome.get("why")), printable(str(outcome.get("detail", "")))
    expected = UNSTARTED if _is_unstarted(outcome) else ""
    return Answer(unreached=_WHY.get(why, Unreached.LOST), detail=f"{detail}{expected}")


def _is_unstarted(outcome: object) -> bool:
    """Whether srun ended before it started anything on any node."""
    return isinstance(outcome, dict) and outcome.get("why") == "unstarted"


JOB = "job"  # the setting with the job's number
# This process may run in a job, whose environment would affect srun.
_CLEAN = (
    "for one in $(env | sed -n 's/^\\(S[A-Z]*_[A-Z0-9_]*\\)=.*/\\1/p'); do case $one in "
    f"{'|'.join(KEPT_VARIABLES)}) ;; SLURM_*|SRUN_*|SBATCH_*) unset $one ;; esac; done"
)
_STEP = (
    "--job-name=clusterproof-watch --nodes=1 --ntasks=1 --overlap --mem=0 --cpu-bind=none --mpi=none --export=NONE "
    "--propagate=NONE --chdir=/ --quiet"
)


def sessions(limits: Limits) -> SessionPerNode:
    """The sessions on a job's nodes: each is a session to the submit host, whose connection must support sessions."""
    to_host = sessions_for(submit_host(limits.settings).connection, limits)
    return SessionPerNode(lambda: SrunSession(to_host.on_node(lambda _: None), limits.settings))


class SrunSession:
    """Through srun, which runs in session `inner` on the submit host. Closing its input ends srun and the step."""

    has_input = True

    def __init__(self, inner: NodeSession, settings: Mapping[str, str]) -> None:
        self._inner, self._settings = inner, settings

    def run(self, target: Target, program: Program, received: Received, dead_s: float) -> str | Future[str]:
        """As in NodeSession."""
        command = step(target.name, program.command, self._settings)
        return self._inner.run(submit_host(self._settings).target, replace(program, command=command), received, dead_s)

    def end(self) -> None:
        """As in NodeSession."""
        self._inner.end()


def step(node: str, command: str, settings: Mapping[str, str]) -> str:
    """The submit host's command line that runs a command on a node of the job."""
    options = [f"--jobid={settings[JOB]}", f"--nodelist={node}", *shlex.split(settings.get("srun_options", ""))]
    srun = f"exec srun {_STEP} {shlex.join(options)} /bin/sh -c {shlex.quote(command)}"
    return f"/bin/sh -c {shlex.quote(f'PATH=$PATH:{FOLDERS}; {_CLEAN}; {srun}')}"
