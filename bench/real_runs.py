"""Real PyTorch training runs over gloo, with a fault in one rank or none: which ranks does `--run` name?

Runs of 4 and 8 ranks, with step logs and traces. Nothing is simulated: the noise is this machine's, and one run of
eight shares it with two busy programs. Every ninth run hangs while `clusterproof watch` records this machine. The last
line is one JSON object.
"""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import IO

from clusterproof.plugins.core.policy import NO_POLICY, Policy
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evaluation.all_checks import all_checks
from clusterproof.plugins.evaluation.evaluate import verdict_on
from clusterproof.plugins.training_run.reading import read_run
from scripts.arguments import Arguments, count

RUNS, STEPS = 48, 150
SIZES = (4, 8)
SEVERITIES = (1.0, 1.5, 2.0)  # a slow rank takes this many times longer in addition
HEALTHY, BUSY, THROTTLED = "nothing", "nothing, on a busy machine", "throttled cgroup"
HANGS = ("stuck in forward", "stuck loader", "deadlock", "endless loop", "stopped")
HANGS_S, HUNG_S = 75.0, 30.0  # until a hanging run is ended, and how long its ranks must wait to be judged
WATCH = (str(Path(sys.executable).with_name("clusterproof")), "watch", "local", "--every", "2", "--record")
FAULTS = ("slow", "growing", "gc pauses", "slow loader", THROTTLED, "uneven batch")
KINDS = (*FAULTS, HEALTHY, BUSY)  # followed by a run that hangs
CGROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))  # version 1 and version 2
PYTHONS = (sys.executable, "/usr/bin/python3")
TRAINING = Path(__file__).with_name("real_training.py")
COMPUTE = "while True: pass"
WAITING = re.compile(r"\([^()]* waiting\)")  # ranks named as waiting are not at fault
RANK = re.compile(r"\branks? ([0-9]+(?:, [0-9]+)*)")


@dataclass(frozen=True)
class Plan:
    """One run, as an input of bench/real_training.py."""

    folder: str
    ranks: int
    steps: int
    fault: str
    rank: int  # the faulty rank
    severity: float
    cgroup: str
    hangs: bool
    batch: int = 128  # samples
    hangs_s: float = HANGS_S  # until it is ended
    dumps: bool = False  # whether its ranks can dump a Flight Recorder

    @property
    def injected(self) -> set[int]:
        """The ranks that should be named."""
        return {self.rank} if self.fault in (*FAULTS, *HANGS) else set()


def plans(runs: int, folder: Path, *, dumps: bool = False) -> Iterator[Plan]:
    """Each kind in turn, with 4 then 8 ranks; every ninth run hangs. Deterministic."""
    random, group = Random(runs), _cgroups()
    kinds = [kind for kind in KINDS if kind != THROTTLED or group]
    for number in range(runs):
        turn, place = divmod(number, len(kinds) + 1)
        ranks, hangs = SIZES[turn % len(SIZES)], place == len(kinds)
        yield Plan(
            folder=str(folder / f"{number:03}"),
            ranks=ranks,
            steps=STEPS,
            fault=HANGS[turn % len(HANGS)] if hangs else kinds[place],
            rank=random.randrange(ranks),
            severity=random.choice(SEVERITIES),
            cgroup=str(group / f"clusterproof-{os.getpid()}-{number}") if group else "",
            hangs=hangs,
            dumps=hangs and dumps,
        )


def _cgroups() -> Path | None:
    """Where a group with limited CPU can be created; None if that is not allowed."""
    for folder in CGROUPS:
        is_first = (folder / "cpu.cfs_quota_us").exists()
        is_second = (folder / "cgroup.subtree_control").exists()
        if os.access(folder, os.W_OK) and (is_first or is_second):
            return folder
    return None


class Training:
    """A process that has imported PyTorch and runs requested trainings."""

    def __init__(self, python: str, log: IO[str]) -> None:
        command_line = ["nice", "-n", "19", python, str(TRAINING)]
        self.process = subprocess.Popen(
            command_line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "TORCH_FR_BUFFER_SIZE": "2000"},
        )

    def run(self, plan: Plan) -> None:
        """Run one plan. Raises RuntimeError."""
        assert self.process.stdin
        assert self.process.stdout
        Path(plan.folder).mkdir()
        with throttling(plan), sharing(plan), watching(plan):
            self.process.stdin.write(json.dumps(asdict(plan)) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        if not answer or (any(json.loads(answer)) and not plan.hangs):
            raise RuntimeError(
                f"a run with {plan.fault} ended with {answer.strip() or 'nothing'}; expected 0 of each rank"
            )

    def end(self) -> None:
        """End the process."""
        self.process.communicate()


@contextmanager
def throttling(plan: Plan) -> Iterator[None]:
    """Create a control group, if the plan needs one."""
    if plan.fault != THROTTLED:
        yield
        return
    Path(plan.cgroup).mkdir()
    try:
        yield
    finally:
        Path(plan.cgroup).rmdir()


@contextmanager
def sharing(plan: Plan) -> Iterator[None]:
    """Run two busy programs, if the plan wants a busy machine."""
    command_line = ["nice", "-n", "15", sys.executable, "-c", COMPUTE]
    others = [subprocess.Popen(command_line) for _ in range(2)] if plan.fault == BUSY else []
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def watching(plan: Plan) -> Iterator[None]:
    """Run `clusterproof watch`, if the plan's run hangs."""
    if not plan.hangs:
        yield
        return
    command_line = ["nice", "-n", "10", *WATCH, f"{plan.folder}/watch"]
    with Path(f"{plan.folder}.watch.log").open("w", encoding="utf-8") as log:
        watch = subprocess.Popen(command_line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            yield
        finally:
            watch.terminate()
            watch.wait()


def named(folder: str) -> dict[int, list[str]]:
    """The ranks that findings name, each with the checks that name it."""
    run, ranks = replace(read_run([folder]), policy=Policy(thresholds={"run.hung_s": HUNG_S})), dict[int, list[str]]()
    for name, check in all_checks().items():
        if check.is_of_run:
            for result in verdict_on(NO_POLICY, check, run).by_verdict:
                if result.verdict in (Verdict.FAIL, Verdict.CONCERN):
                    for match in RANK.finditer(WAITING.sub("", result.message)):
                        for rank in map(int, match[1].split(", ")):
                            ranks.setdefault(rank, []).append(name)
    return {rank: list(dict.fromkeys(checks)) for rank, checks in sorted(ranks.items())}


@functools.cache
def torch_python(named_python: str | None) -> str | None:
    """A Python with PyTorch; None if there is none."""
    for python in [named_python] if named_python else PYTHONS:
        if _runs(python, "import torch.distributed"):
            return python
    return None


def records_flights(python: str) -> bool:
    """Whether its PyTorch has a Flight Recorder for gloo, as since 2.8, which names the rank that hangs."""
    return _runs(
        python, "import torch; torch._C._distributed_c10d._dump_fr_trace_json; assert torch.__version__ >= '2.8'"
    )


def _runs(python: str, program: str) -> bool:
    return subprocess.run([python, "-c", program], capture_output=True, check=False).returncode == 0


def main(arguments: Sequence[str]) -> int:
    """Train, evaluate, and print the ranks that each run names; return 0 if no run names an innocent rank."""
    parser = Arguments("scripts/simulate real_runs", __doc__)
    parser.add_argument("runs", type=count, nargs="?", default=RUNS, help=f"number of runs (default {RUNS})")
    parser.add_argument("--torch-python", metavar="PATH", help="a Python that has PyTorch")
    parser.add_argument("--fault", metavar="WORD", default="", help="only runs with this word in their fault")
    parser.add_argument("--keep", metavar="DIR", help="keep the files of all runs there")
    option = parser.parse_args(arguments)
    python = torch_python(option.torch_python)
    if python is None:
        tried = option.torch_python or ", ".join(PYTHONS)
        parser.error(f"no PyTorch in {tried}; expected --torch-python PATH, or: apt-get install python3-torch")
    with TemporaryDirectory() as temporary:
        folder = Path(option.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "training.log").open("w", encoding="utf-8") as log:
            every = plans(option.runs, folder, dumps=records_flights(python))
            planned = (plan for plan in every if option.fault in plan.fault)
            figures = trained(planned, Training(python, log))
    print(json.dumps(figures))
    return 1 if figures["innocent_named"] else 0


def trained(planned: Iterable[Plan], training: Training) -> Counter[str]:
    """The ranks that each run names."""
    figures = Counter(runs=0, injected=0, named=0, hung=0, hung_named=0, innocent_named=0)
    for number, plan in enumerate(planned, 1):
        training.run(plan)
        named_ranks = named(plan.folder)
        innocent = named_ranks.keys() - plan.injected
        figures.update(
            {
                "runs": 1,
                "hung" if plan.hangs else "injected": len(plan.injected),
                "hung_named" if plan.hangs else "named": len(plan.injected & named_ranks.keys()),
                "innocent_named": len(innocent),
            }
        )
        whom = "; ".join(f"rank {rank}: {', '.join(checks)}" for rank, checks in named_ranks.items()) or "nobody"
        fault = f"{plan.fault} in rank {plan.rank}" if plan.injected else plan.fault
        print(f"{number}. {plan.ranks} ranks, {fault}: {whom}{' – innocent' if innocent else ''}", flush=True)
    training.end()
    return figures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
