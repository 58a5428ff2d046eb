"""The program for the host with Slurm's commands: reserves nodes, runs steps on them, releases them.

It travels as text with its imports, before the line that calls `main`; standard library only, for Python 3.8. The
steps of a request end with it and with the connection over which it reports; so do reservations of ours.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any

from clusterproof.plugins.agent.packing import packed
from clusterproof.plugins.agent.sending import send
from clusterproof.plugins.benchmarks.launchers.allocation import reserve
from clusterproof.plugins.benchmarks.launchers.pipes import BoundedOutput, Disconnected, wait
from clusterproof.plugins.transport.srun.places import ASK_S, FOLDERS, ask, clean

ENDS_S = 2.0
OWN_LINES = 32  # of srun's own output: tasks' output is prefixed with their numbers
OTHERS_S = 10  # for the other ranks, once one has ended; 0 means unlimited
OF_RANKS = "PATH,LD_LIBRARY_PATH,OPAL_PREFIX"  # of the environment here: modules set it to locate MPI
# Slurm's other PMIx fences let a rank continue before all have arrived, and Open MPI 5 crashes on what it then sends
# (open-mpi/ompi#12495): 15 of 300 runs of four ranks with Slurm 24.11's default, 0 of 300 with this one.
FENCE = "SLURM_PMIX_FENCE=ring"
NO_RANKS = ["--export=NONE", "--mpi=none"]
NOISE = re.compile(rb"^srun: error: Unable to adjust maximum number of open files.*\n?", re.MULTILINE)
LABEL = re.compile(rb"^ *\d+: ?", re.MULTILINE)
TEXT = "@TEXT@"  # placeholder for the packed program in the command that starts it on a node


def main(request: dict[str, Any], nonce: str, _sudo: str) -> None:
    """Answer one request and end this process."""
    os.environ["PATH"] = os.environ.get("PATH", "/usr/bin") + ":" + FOLDERS
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        send(json.dumps(answer(request)).encode(), nonce)
    except (Disconnected, BrokenPipeError):
        release(request)
    except Exception:  # a bug of ours: the error is sent in place of the answer's end
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def stop(_number: int, _frame: object) -> None:
    """End as if the connection were lost. Raises Disconnected."""
    raise Disconnected


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The result of a request, or an error for all of it."""
    try:
        if request["do"] == "reserve":
            return reserve(request)
        if request["do"] == "release":
            return {"released": ask("scancel", request["job"])[1][:300]}
        return run(request)
    except FileNotFoundError as problem:
        return {"wrong": f"no {problem.filename} on PATH or in {FOLDERS}"}
    except subprocess.TimeoutExpired as problem:
        return {"wrong": f"{problem.cmd[0]} does not answer within {ASK_S:g} s"}


def release(request: dict[str, Any]) -> None:
    """End the job of ours for which nobody waits any more: also one whose number was not heard."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    if request.get("is_ours"):
        ask("scancel", request["job"])
    elif request["do"] == "reserve" and not request["job"]:
        ask("scancel", f"--name={request['name']}")


class Step:
    """One srun inside the job: its bounded output, and how it ended."""

    def __init__(self, record: dict[str, Any], request: dict[str, Any]) -> None:
        self.record = record
        self.name = f"{request['name']}-{record['key']}"
        self.exit: int | None = None
        self.seconds = 0.0
        self.output = BoundedOutput(request["most_bytes"])
        self.began = time.monotonic()
        self.until = self.began + record["deadline_s"]
        self.process = subprocess.Popen(self.command(request), stdin=-3, stdout=-1, stderr=-2, env=clean())
        assert self.process.stdout
        self.pipe = self.process.stdout.fileno()

    def command(self, request: dict[str, Any]) -> list[str]:
        """Its command line."""
        nodes, tasks = self.record["nodes"], self.record["tasks"]
        minutes = math.ceil(self.record["deadline_s"] / 60) + 1
        command = ["srun", f"--jobid={request['job']}", f"--job-name={self.name}", f"--nodelist={','.join(nodes)}"]
        command += [f"--nodes={len(nodes)}", f"--ntasks={len(nodes) * tasks}", f"--ntasks-per-node={tasks}"]
        command += ["--overlap", "--mem=0", "--label", "--input=none", f"--time={minutes}"]
        others_s = self.record.get("others_s", OTHERS_S)
        command += ["--kill-on-bad-exit=0", f"--wait={others_s}"]  # lets ranks report why they failed
        command += ["--propagate=NONE", "--chdir=/", "--cpu-bind=none"]
        command += [f"--export={OF_RANKS},{FENCE}", f"--mpi={self.record['mpi']}"] if "mpi" in self.record else NO_RANKS
        command += request["options"]
        shell = self.record.get("shell") or shell_of(self.record["visit"], request["program"])
        return [*command, "/bin/sh", "-c", shell]

    def take_output(self) -> None:
        """Read from its pipe, and check whether it has ended."""
        read = os.read(self.pipe, 65536)
        if not read:
            self.pipe = -1
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.exit = self.process.wait(ENDS_S)
            self.seconds = time.monotonic() - self.began
            return
        self.output.add(read)

    def end(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(ENDS_S)
        if self.process.poll() is None:
            self.process.kill()
        self.seconds = self.seconds or time.monotonic() - self.began

    def to_json(self) -> dict[str, Any]:
        """Its output, srun's own lines, and how it ended."""
        output = NOISE.sub(b"", self.output.kept())
        own = [line.decode("utf-8", "replace") for line in output.split(b"\n") if line.startswith(b"srun: ")]
        text = LABEL.sub(b"", output).decode("utf-8", "replace")
        return {"text": text, "own": own[:OWN_LINES], "exit": self.exit, "seconds": round(self.seconds, 3)}


def shell_of(request: dict[str, Any], program: dict[str, str]) -> str:
    """The command line that answers a request on a node."""
    text = f"{program['source']}\nmain({request!r}, *sys.argv[1:3])\n"
    return program["shell"].replace(TEXT, packed(text))


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Run all steps in parallel; then clean up after those that failed, on nodes that still answer."""
    results = together(request["steps"], request)
    failed = [step for step in request["steps"] if results[step["key"]]["exit"] != 0]
    cleanups = [clean_up for step in failed for clean_up in step["cleanups"]]
    if not cleanups:
        return {"steps": results, "cleaned": {}}
    cancel_steps(request["job"], [f"{request['name']}-{step['key']}" for step in failed])
    return {"steps": results, "cleaned": together(cleanups, request)}


def together(steps: list[dict[str, Any]], request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Run these steps in parallel, each until its deadline. Raises Disconnected."""
    running = []
    try:
        running = [Step(step, request) for step in steps]
        waiting = running
        while waiting:
            pipes = {step.pipe: step for step in waiting}
            for ready in wait(min(step.until for step in waiting) - time.monotonic(), *pipes):
                pipes[ready].take_output()
            waiting = [step for step in waiting if step.pipe >= 0 and time.monotonic() < step.until]
    finally:
        for step in running:  # all get the signal before any is waited for
            if step.exit is None and step.process.poll() is None:
                step.process.terminate()
        for step in running:
            step.end()
    return {step.record["key"]: step.to_json() for step in running}


def cancel_steps(job: str, names: list[str]) -> None:
    """Cancel steps by name, if srun has left any; a lost node keeps Slurm from answering."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        rows = [row.split() for row in ask("squeue", "-h", "-s", "-j", job, "-o", "%i %j")[1].splitlines()]
        left = [row[0] for row in rows if len(row) > 1 and row[1] in names]
        if left:
            ask("scancel", "--signal=KILL", *left)
