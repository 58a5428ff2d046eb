"""What a prolog costs, from exec to exit, on a fake node with 8 GPUs, beside health checks of bash."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.figure import Figure
from tests.builders.wheel import ROOT, environment_with, wheel_of
from tests.integrations.slurm.scripts import SETTINGS
from tests.testbed import needs
from tests.testbed.image import File, Link
from tests.testbed.node import entered, healthy_p5, with_file

RUNS = 30
BIN = "/opt/clusterproof/bin"
BASH_CHECKS = "/opt/bash_checks.sh"
# Runs each command `runs` times, one after the other by turns, with its settings, and prints what each took: wall
# seconds, CPU seconds of it and of all that it waited for, and the KiB of the largest process among them.
MEASURE = """
import json, os, subprocess, sys, time
commands, settings, runs = json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3])
took = {name: [] for name in commands}
for _ in range(runs + 1):
    for name, (words, toml) in commands.items():
        with open(settings, "w") as file:
            file.write(toml)
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
COMMANDS = {
    "cold": ([f"{BIN}/clusterproof-prolog"], 'mode = "drain"\nreuse_s = 0\n'),
    "reused": ([f"{BIN}/clusterproof-prolog"], 'mode = "drain"\nreuse_s = 3600\n'),
    "bash": (["bash", BASH_CHECKS], ""),
    "pass": ([f"{BIN}/python", "-I", "-c", "pass"], ""),
}


@dataclass(frozen=True)
class Cost:
    """What the runs of one command took: wall and CPU seconds, and MiB of the largest process."""

    walls_s: tuple[float, ...]
    cpus_s: tuple[float, ...]
    peak_mib: float

    @classmethod
    def of(cls, runs: list[tuple[float, float, int]]) -> Cost:
        """The cost of these runs."""
        walls, cpus, peaks = zip(*runs, strict=True)
        return cls(walls, cpus, max(peaks) / 1024)


def prolog() -> Iterator[Figure]:
    """A prolog that checks everything, and one that takes the last verdict, by turns with the checks of bash."""
    if needs.needs_nodes.args[0]:
        yield Figure("prolog_cold_vs_bash_checks", None, "≤ 2", str(needs.needs_nodes.kwargs["reason"]))
        return
    cost = _measured()
    yield from _beside_bash("prolog_cold", cost["cold"], cost["bash"], 2.0, 2.5)
    yield from _beside_bash("prolog_reused", cost["reused"], cost["bash"], 0.8, 0.8)
    cold = cost["cold"]
    nothing = f"python3 -c pass {median(cost['pass'].walls_s):.3f} s"
    yield Figure("prolog_wall_s", round(median(cold.walls_s), 3), "≤ 0.5", f"{_worst(cold.walls_s)}; {nothing}")
    yield Figure("prolog_cpu_s", round(median(cold.cpus_s), 3), "≤ 0.5", f"{_worst(cold.cpus_s)}, probe included")
    yield Figure("prolog_peak_mib", round(cold.peak_mib, 1), "-", f"largest process; bash {cost['bash'].peak_mib:.1f}")


def _beside_bash(name: str, cost: Cost, bash: Cost, wall: float, cpu: float) -> Iterator[Figure]:
    for key, goal, ours, theirs in (
        ("", wall, cost.walls_s, bash.walls_s),
        ("_cpu", cpu, cost.cpus_s, bash.cpus_s),
    ):
        ratio = round(median(ours) / median(theirs), 2)
        words = f"{median(ours):.3f} s, {_worst(ours)}; 22 checks of bash {median(theirs):.3f} s, {_worst(theirs)}"
        yield Figure(f"{name}{key}_vs_bash_checks", ratio, f"≤ {goal:g}", words)


def _worst(seconds: tuple[float, ...]) -> str:
    return f"worst of {len(seconds)} {max(seconds):.3f} s"


def _measured(commands: Mapping[str, Any] = COMMANDS) -> dict[str, Cost]:
    checks = (ROOT / "bench" / "bash_checks.sh").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        installed = environment_with(wheel_of(ROOT, Path(folder)), Path(folder) / "environment")
        node = with_file(healthy_p5(), BASH_CHECKS, File(checks, 0o755))
        with entered(with_file(node, "/opt/clusterproof", Link(str(installed.environment))), "gpu001") as running:
            (running.root / SETTINGS.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            words = [f"{BIN}/python", "-c", MEASURE, json.dumps(commands), SETTINGS, str(RUNS)]
            ran = running.run(words, timeout=600)
    if ran.returncode:
        raise RuntimeError(ran.stderr.decode(errors="replace"))
    data: dict[str, list[tuple[float, float, int]]] = json.loads(ran.stdout)
    return {name: Cost.of(runs) for name, runs in data.items()}
