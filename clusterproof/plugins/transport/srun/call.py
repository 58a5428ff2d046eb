"""One srun that starts a command on nodes: the output of each of its tasks, and srun's own messages.

Travels with `launch`; standard library only, for Python 3.8.
"""

from __future__ import annotations

import os
import re
import subprocess
import time

from clusterproof.plugins.agent.packing import ARGUMENT, script_of
from clusterproof.plugins.transport.srun.places import ASK_S, MIN_MEMORY_MIB, Launch, NodeAnswer, Request, ask, clean

GRANTED = ("has been allocated resources", "Nodes ready for job")
REFUSED = "Unable to allocate resources"
LAUNCHED = re.compile(r"srun: launching \S+ on host (\S+), 1 tasks?: (\d+)$")
NODE_ERROR = re.compile(r"srun: error: (?:Task launch for \S+ failed on node (\S+): (.*)|([^\s:]+): (tasks? .*))")
PROBLEM = re.compile(r"(?:error: ?|fatal: |srun: (?=(?:unrecognized |invalid )?option ))(.*)")
NOISE = "Unable to adjust maximum number of open files"
NO_REASON = re.compile(r"spank: |pyxis: *(child \d+ failed with error code: \d+|printing enroot log file:|)$")
WORDS_S = 2.0  # for a task's output to arrive after srun reported that it failed
LINE = re.compile(rb" *(\d+): ?(.*)", re.DOTALL)  # of a task: srun puts its number first, whatever it prints
JOINED = 't=;for p in "$@";do t=$t$p;done;set --;eval "$t"'  # joins a script that arrives as several arguments
QUIET = ("-Q", "--quiet")  # conflict with the -v that makes srun say which task is on which node


def job_name(launch: Launch, request: Request) -> str:
    """The name of an srun's job, which no other job has."""
    return f"{request['name']}-{len(launch['nodes'])}-{launch['nodes'][0]}"


def command_line(launch: Launch, request: Request) -> list[str]:
    """The command line of one srun."""
    count = len(launch["nodes"])
    line = [
        "srun",
        f"--job-name={job_name(launch, request)}",
        f"--nodelist={','.join(launch['nodes'])}",
        f"--nodes={count}",
    ]
    line += [f"--ntasks={count}", "--ntasks-per-node=1", "--label", "--input=none", "--kill-on-bad-exit=0"]
    line += ["--no-kill", "--export=NONE", "--propagate=NONE", "--chdir=/", "--mpi=none"]
    if launch["job"]:
        line += [f"--jobid={launch['job']}", "--overlap", "--mem=0"]
    else:
        line += [f"--time={request['minutes']}"]  # no --immediate: SchedulerParameters=defer would refuse it
        line += [f"--partition={launch['partition']}"] if launch["partition"] else []
        line += [f"--gres=gpu:{launch['gpus']}"] if launch["gpus"] else []
        line += [f"--mem={MIN_MEMORY_MIB}M"] if launch["memory"] else []
    line += ["-v"] if not set(QUIET).intersection(request["options"]) else []
    script = f"echo {request['mark']}$SLURMD_NODENAME.;{script_of(request['command'])}"
    return [*line, *request["options"], "/bin/sh", "-c", *arguments(script)]


def arguments(script: str) -> list[str]:
    """A shell script as arguments: as many as it needs."""
    if len(script) <= ARGUMENT:
        return [script]
    return [JOINED, "sh", *(script[start : start + ARGUMENT] for start in range(0, len(script), ARGUMENT))]


class Srun:
    """A running srun: the output of each of its tasks, and its own messages."""

    is_slurm_silent = False  # once Slurm has not answered about one of them in time, it is asked about no other

    def __init__(self, launch: Launch, request: Request) -> None:
        self.launch = launch
        self.waiting = set(launch["nodes"])
        self.failed: dict[str, str] = {}
        self.tasks: dict[int, bytearray] = {}
        self.errors: dict[int, str] = {}  # the first error that each task reports
        self.words_until = 0.0
        self.node_of: dict[int, str] = {}  # according to srun
        self.ended: set[int] = set()
        self.messages: list[str] = []  # its own errors
        self.is_granted = bool(launch["job"])
        self.give_up = time.monotonic() + request["wait_s"]
        self.request = request
        self._parts = {1: b"", 2: b""}
        self.process = subprocess.Popen(command_line(launch, request), stdin=-3, stdout=-1, stderr=-1, env=clean())
        self.pipes = {self.process.stdout.fileno(): 1, self.process.stderr.fileno(): 2}  # type: ignore[union-attr]

    def read_from(self, pipe: int) -> bool:
        """Read from a pipe; whether there may be more."""
        read = os.read(pipe, 65536)
        stream = self.pipes[pipe]
        *lines, part = (self._parts[stream] + read).split(b"\n")
        self._parts[stream] = part[-self.request["most_bytes"] :]
        for line in lines:
            labelled = LINE.fullmatch(line)
            if stream == 1:
                self._of_task(line)
            elif labelled:
                self._error_of_task(int(labelled[1]), labelled[2].decode("utf-8", "replace"))
            else:
                self._of_srun(line.decode("utf-8", "replace"))
        return bool(read)

    def _of_task(self, line: bytes) -> None:
        labelled = LINE.fullmatch(line)
        if not labelled:
            return
        self.is_granted = True
        task = int(labelled[1])
        kept = self.tasks.setdefault(task, bytearray())
        kept += (labelled[2] + b"\n")[: max(0, self.request["most_bytes"] - len(kept))]
        if self.request["end"].encode() in labelled[2]:
            self.ended.add(task)
            self.waiting.discard(self.node_of.get(task, ""))

    def is_waited_for(self) -> bool:
        """Whether more may come: not if Slurm gives it no nodes in time."""
        now = time.monotonic()
        may_speak = bool(self.waiting) or now < self.words_until
        return bool(self.pipes and may_speak) and (self.is_granted or now < self.give_up)

    def refusal(self) -> str:
        """Why Slurm gives it no nodes: its own message, or its reason for the job in the queue."""
        refusals = [message for message in self.messages if REFUSED in message]
        if self.is_granted or refusals or not self.pipes:
            return "".join(refusals[:1])
        queued = self.ask("squeue", "-h", "-o", "%r")
        reason = f"Slurm does not answer within {ASK_S:g} s" if queued is None else queued.split("\n")[0][:100]
        return f"no place within {self.request['wait_s']:g} s: {reason or 'no reason'}"

    def ask(self, *command: str) -> str | None:
        """What a command of Slurm's prints about its job; None if Slurm does not answer in time."""
        if not Srun.is_slurm_silent:
            try:
                return ask(*command, f"--name={job_name(self.launch, self.request)}")[1]
            except subprocess.TimeoutExpired:
                Srun.is_slurm_silent = True
        return None

    def _error_of_task(self, task: int, line: str) -> None:
        """Keep what a task prints on its standard error: it can only speak for its own node."""
        error = " ".join(line.partition("error:")[2].split())
        if error and not NO_REASON.match(error) and len(self.errors.get(task, "")) < 200:
            self.errors[task] = "; ".join(filter(None, (self.errors.get(task), error[:200])))

    def _of_srun(self, line: str) -> None:
        launched, failed = LAUNCHED.match(line), NODE_ERROR.match(line)
        self.is_granted = self.is_granted or bool(launched or failed) or any(granted in line for granted in GRANTED)
        if launched:
            self.node_of[int(launched[2])] = launched[1]
            if int(launched[2]) in self.ended:
                self.waiting.discard(launched[1])
            return
        if failed:
            name = failed[1] or failed[3]
            self.failed.setdefault(name, (failed[2] or failed[4])[:200])
            self.waiting.discard(name)
            self.words_until = time.monotonic() + WORDS_S
        elif NOISE not in line:
            self.messages += [problem.strip()[:200] for problem in PROBLEM.findall(line)]

    def answers(self) -> dict[str, NodeAnswer]:
        """Each node's answer; srun determines the node, and a task that claims another name is not trusted."""
        node_of = self.node_of or dict(enumerate(self.launch["nodes"]))
        requested = set(self.launch["nodes"])
        answers: dict[str, NodeAnswer] = {}
        for task, kept in self.tasks.items():
            name, calls_itself = node_of.get(task, ""), named(kept, self.request["mark"])
            if name in requested:
                answers[name] = {"output": kept.decode("latin-1")}
                if calls_itself not in ("", name):
                    answers[name] = {
                        "why": "another",
                        "detail": f"it answered as {calls_itself}, and srun has it as {name}",
                    }
        why = "failed" if self.node_of or self.tasks or self.failed or not self.messages else "unstarted"
        errors = {node_of[task]: message for task, message in self.errors.items() if task in node_of}
        for name in self.launch["nodes"]:
            own = "; ".join(filter(None, (errors.get(name), self.failed.get(name))))
            problem = own or (self.messages or ["started nothing on it in time"])[0]
            answers.setdefault(name, {"why": why, "detail": f"srun: {problem}"})
        return answers


def named(output: bytearray, mark: str) -> str:
    """The name that a task reports for itself; empty if it reports none."""
    name = re.search(re.escape(mark.encode()) + rb"([A-Za-z0-9._-]{1,253})\.\n", bytes(output[:4096]))
    return name[1].decode() if name else ""
