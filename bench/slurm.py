"""What a prolog costs, from exec to exit, on a fake node with 8 GPUs, beside health checks of bash."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Figure
from tests.builders.wheel import ROOT, clone_of, environment_with, wheel_of
from tests.integrations.slurm.scripts import SETTINGS
from tests.testbed import needs
from tests.testbed.image import File, Link
from tests.testbed.node import Node, entered, healthy_p5, with_file, with_whole_machine

RUNS = 30
BIN = "/opt/clusterproof/bin"
BASH_CHECKS = "/opt/bash_checks.sh"
# Runs each command `runs` times, alternating, with its settings, and prints for each: wall seconds, CPU seconds
# including its children, and the KiB of the largest process. A command with `is_repeated` runs twice each time, and the
# second run is measured.
MEASURE = """
import json, os, subprocess, sys, time
commands, settings, runs = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
took = {name: [] for name in commands}
for _ in range(runs + 1):
    for name, (words, toml, is_repeated) in commands.items():
        with open(settings, "w") as file:
            file.write(toml)
        if is_repeated:
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = time.perf_counter()
        with open("/tmp/said", "w+") as said:
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said)
            status, used = os.wait4(process.pid, 0)[1:]
            said.seek(0)
            output = said.read()
        took[name].append((time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss))
        if status or "no verdict" in output:
            sys.exit(f"{name} ended with {status}: {output}")
print(json.dumps({name: times[1:] for name, times in took.items()}))
"""
JOBS, ROUNDS = 100, 5
# A single prolog and the prologs of many jobs that start at once, alternating: wall seconds of each, and how many runs
# those needed. A job that starts after the first verdict, as on a slow machine, needs another run.
AT_ONCE = f"""
import json, os, subprocess, sys, time
def of(jobs):
    began = time.perf_counter()
    with open("/tmp/said", "w") as said:
        started = [
            subprocess.Popen(["{BIN}/clusterproof-prolog"], stdout=said, stderr=said, env={{"SLURM_JOB_ID": str(job)}})
            for job in range(1, jobs + 1)
        ]
    failed = [process.wait() for process in started if process.wait()]
    with open("/tmp/said") as said:
        output = said.read()
    if failed or "no verdict" in output:
        sys.exit(f"{{len(failed)}} of {{jobs}} failed: {{output[:2000]}}")
    return time.perf_counter() - began, output.count(" checks in ")
of(1)
print(json.dumps([[of(1)[0], *of({JOBS})] for _ in range({ROUNDS})]))
"""
COMMANDS = {
    "cold": ([f"{BIN}/clusterproof-prolog"], 'mode = "drain"\nreuse_s = 0\n', False),
    "reused": ([f"{BIN}/clusterproof-prolog"], 'mode = "drain"\nreuse_s = 3600\n', True),
    "bash": (["bash", BASH_CHECKS], "", False),
    "pass": ([f"{BIN}/python", "-I", "-c", "pass"], "", False),
}


@dataclass(frozen=True)
class Cost:
    """The cost of one command's runs: wall and CPU seconds, and MiB of the largest process."""

    walls_s: tuple[float, ...]
    cpus_s: tuple[float, ...]
    peak_mib: float

    @classmethod
    def of(cls, runs: list[tuple[float, float, int]]) -> Cost:
        """Summarise these runs."""
        walls, cpus, peaks = zip(*runs, strict=True)
        return cls(walls, cpus, max(peaks) / 1024)


def prolog() -> Iterator[Figure]:
    """A prolog that checks everything, and one that reuses the last verdict, alternating with the checks of bash."""
    if needs.needs_nodes.args[0]:
        yield Figure("prolog_cold_vs_bash_checks", None, "≤ 2", str(needs.needs_nodes.kwargs["reason"]))
        return
    cost = _measured()
    yield from _beside_bash("prolog_cold", cost["cold"], cost["bash"], 2.0, 2.5)
    yield from _beside_bash("prolog_reused", cost["reused"], cost["bash"], 0.5, 0.5)
    cold = cost["cold"]
    nothing = f"python3 -c pass {median(cost['pass'].walls_s):.3f} s"
    yield Figure("prolog_wall_s", round(median(cold.walls_s), 3), "≤ 0.5", f"{_worst(cold.walls_s)}; {nothing}")
    yield Figure("prolog_cpu_s", round(median(cold.cpus_s), 3), "≤ 0.5", f"{_worst(cold.cpus_s)}, probe included")
    yield Figure("prolog_peak_mib", round(cold.peak_mib, 1), "-", f"largest process; bash {cost['bash'].peak_mib:.1f}")


def at_once() -> Iterator[Figure]:
    """The prologs of many jobs that start at the same moment, with no earlier verdict."""
    name = f"prologs_{JOBS}_at_once_vs_two_cold_and_1_s"
    if needs.needs_nodes.args[0]:
        yield Figure(name, None, "≤ 1", str(needs.needs_nodes.kwargs["reason"]))
        return
    with _node() as running:
        (running.root / SETTINGS.lstrip("/")).write_text(COMMANDS["cold"][1])
        rounds = json.loads(_output_of(running, f"{BIN}/python", "-c", AT_ONCE))
    alone_s, all_s, runs = (median(column) for column in zip(*rounds, strict=True))
    detail = f"{JOBS} jobs {all_s:.2f} s with {runs:g} runs, one {alone_s:.2f} s; medians of {ROUNDS}"
    yield Figure(name, round(all_s / (2 * alone_s + 1), 2), "≤ 1", detail)


def _beside_bash(name: str, cost: Cost, bash: Cost, wall: float, cpu: float) -> Iterator[Figure]:
    for key, goal, ours, theirs in (
        ("", wall, cost.walls_s, bash.walls_s),
        ("_cpu", cpu, cost.cpus_s, bash.cpus_s),
    ):
        ratio = round(median(ours) / median(theirs), 2)
        detail = f"{median(ours):.3f} s, {_worst(ours)}; 22 checks of bash {median(theirs):.3f} s, {_worst(theirs)}"
        yield Figure(f"{name}{key}_vs_bash_checks", ratio, f"≤ {goal:g}", detail)


def _worst(seconds: tuple[float, ...]) -> str:
    return f"worst of {len(seconds)} {max(seconds):.3f} s"


def _measured(commands: Mapping[str, Any] = COMMANDS) -> dict[str, Cost]:
    with _node() as running:
        command_line = [f"{BIN}/python", "-c", MEASURE, json.dumps(commands), SETTINGS, str(RUNS)]
        document: dict[str, list[tuple[float, float, int]]] = json.loads(_output_of(running, *command_line))
    return {name: Cost.of(runs) for name, runs in document.items()}


@contextmanager
def _node() -> Iterator[Node]:
    """A node with 8 GPUs, the installed wheel, and the checks of bash."""
    checks = (ROOT / "bench" / "bash_checks.sh").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        wheel = wheel_of(clone_of(ROOT, Path(folder, "source")), Path(folder, "wheels"))  # leaves no build/ in ROOT
        installed = environment_with(wheel, Path(folder, "environment"))
        node = with_file(with_whole_machine(healthy_p5()), BASH_CHECKS, File(checks, 0o755))
        with entered(with_file(node, "/opt/clusterproof", Link(str(installed.environment))), "gpu001") as running:
            (running.root / SETTINGS.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            yield running


def _output_of(running: Node, *arguments: str) -> bytes:
    ran = running.run(arguments, timeout=600, env={"SLURM_JOB_ID": "1"})
    if ran.returncode:
        raise RuntimeError(ran.stderr.decode(errors="replace"))
    return ran.stdout
