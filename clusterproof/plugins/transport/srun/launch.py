"""The program for a host with Slurm's commands: starts one command on many nodes with srun.

Travels as text before the lines that call `main`; standard library only, for Python 3.8.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any, TypedDict

from clusterproof.plugins.agent.packing import packed
from clusterproof.plugins.agent.sending import send
from clusterproof.plugins.transport.srun.call import Srun
from clusterproof.plugins.transport.srun.places import (
    ASK_S,
    CONSTRAINS,
    FOLDERS,
    Launch,
    NodeAnswer,
    Request,
    ask,
    is_full,
    nodes_of,
    own_jobs,
    plan,
)

AT_ONCE = 32  # sruns: only if Slurm does not allocate all nodes together
END_S = 2.0  # for an srun to release its nodes


class Answered(TypedDict, total=False):
    """The outcome for each node, or an error for all."""

    nodes: dict[str, NodeAnswer]
    wrong: str


def main(request: dict[str, Any], nonce: str, _sudo: str) -> None:
    """Answer one request and exit."""
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin") + ":" + FOLDERS
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda number, _frame: sys.exit(number))
    repacked_request: Request = {**request, "command": repacked(*request["command"])}  # type: ignore[typeddict-item]
    send(json.dumps(answer(repacked_request)).encode(), nonce)


def repacked(before: str, text: str, after: str) -> str:
    """The command for a node, whose program was sent uncompressed: compressed twice, it would hardly shrink."""
    return before + packed(text) + after if text else before


def answer(request: Request) -> Answered:
    """What each node answered, or Slurm's reason why it did not; or an error for all."""
    try:
        listing, config = ask("scontrol", "-o", "show", "node"), ask("scontrol", "show", "config")
        for status, printed in (listing, config):
            if status:
                return {"wrong": f"scontrol: {' '.join(printed.split())[:300]}"}
        records = nodes_of(listing[1])
        jobs = own_jobs([record for record in records.values() if is_full(record)], request["job"])
    except FileNotFoundError as problem:
        return {"wrong": f"no {problem.filename} on PATH or in {FOLDERS}"}
    except subprocess.TimeoutExpired as problem:
        return {"wrong": f"{problem.cmd[0]} does not answer within {ASK_S:g} s"}
    order = {name: index for index, name in enumerate(records)}  # Slurm numbers tasks in its own order
    names = sorted(request["names"] or records, key=lambda name: order.get(name, 0))
    launches, refused = plan(names, records, jobs, bool(CONSTRAINS.search(config[1])), request["partition"])
    return {"nodes": {**refused, **run(launches, request)}}


def run(launches: list[Launch], request: Request) -> dict[str, NodeAnswer]:
    """Start the sruns. If Slurm does not allocate several nodes together, each is requested alone."""
    nodes: dict[str, NodeAnswer] = {}
    running: list[Srun] = []
    until = time.monotonic() + request["whole_s"]
    try:
        while (launches or running) and time.monotonic() < until:
            while launches and len(running) < AT_ONCE:
                running.append(Srun(launches.pop(0), request))
            listen(running, until)
            for srun in [srun for srun in running if not srun.is_waited_for()]:
                running.remove(srun)
                answers, again = outcome(srun)
                nodes.update(answers)
                launches += again
    finally:
        for srun in running:
            end(srun)
    for srun in running:
        nodes.update(srun.answers())
    untried: NodeAnswer = {"why": "busy", "detail": "the time was over before srun was tried"}
    return {**{name: untried for launch in launches for name in launch["nodes"]}, **nodes}


def outcome(srun: Srun) -> tuple[dict[str, NodeAnswer], list[Launch]]:
    """Finish an srun and collect its answers; or, if its nodes were refused together, start an srun for each alone."""
    refusal = srun.refusal()
    end(srun)
    nodes = srun.launch["nodes"]
    if not refusal:
        return srun.answers(), []
    if len(nodes) > 1:
        return {}, [{**srun.launch, "gpus": "", "nodes": [name]} for name in nodes]
    return {nodes[0]: {"why": "busy", "detail": refusal}}, []


def listen(running: list[Srun], until: float) -> None:
    """Wait for the next output of any srun."""
    pipes = {pipe: srun for srun in running for pipe in srun.pipes}
    wakes = [until, *(srun.give_up for srun in running if not srun.is_granted)]
    wakes += [srun.words_until for srun in running if not srun.waiting]
    ready = select.select(list(pipes), [], [], max(0.0, min(wakes) - time.monotonic()))[0]
    for pipe in ready:
        if not pipes[pipe].read_from(pipe):
            del pipes[pipe].pipes[pipe]


def end(srun: Srun) -> None:
    """End an srun, so that its nodes are released."""
    if srun.process.poll() is None and not srun.pipes:
        wait(srun)
    if srun.process.poll() is None:
        srun.process.terminate()
        wait(srun)
    if srun.process.poll() is None:
        srun.process.kill()
        wait(srun)
        if not srun.launch["job"]:
            srun.ask("scancel")  # without an answer, the job ends at its time limit
    for pipe in (srun.process.stdout, srun.process.stderr):
        pipe.close()  # type: ignore[union-attr]


def wait(srun: Srun) -> None:
    """Wait briefly for an srun to exit."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        srun.process.wait(END_S)
