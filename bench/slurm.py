"""What a prolog costs, from exec to exit, on a fake node with 8 GPUs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.figure import Figure
from tests.slurm_scripts import SCRIPTS, SETTINGS
from tests.testbed import needs
from tests.testbed.image import Link
from tests.testbed.node import entered, healthy_p5, with_file

RUNS = 30
BIN = Path(sys.prefix) / "bin"
# Runs each command RUNS times, one after the other by turns, and tells what each took: wall and CPU seconds of it and
# of all that it waited for.
MEASURE = """
import json, os, subprocess, sys, time
commands, runs = json.loads(sys.argv[1]), int(sys.argv[2])
took = {name: [] for name in commands}
for _ in range(runs + 1):
    for name, command in commands.items():
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        used = os.wait4(process.pid, 0)[2]
        took[name].append((time.perf_counter() - began, used.ru_utime + used.ru_stime))
print(json.dumps({name: times[1:] for name, times in took.items()}))
"""
COMMANDS = {
    "prolog": [str(SCRIPTS / "clusterproof-prolog")],
    "pass": [str(BIN / "python3"), "-c", "pass"],
    "version": [str(BIN / "pytest"), "--version"],
}


def prolog() -> Iterator[Figure]:
    """A prolog that checks everything, and one that takes the last verdict, beside Python and pytest doing nothing."""
    if needs.needs_nodes.args[0]:
        yield Figure("prolog_wall_s", None, "≤ 0.5", str(needs.needs_nodes.kwargs["reason"]))
        return
    took = _measured(reuse_s=0, names=("prolog", "pass", "version"))
    reused = _measured(reuse_s=3600, names=("prolog",))["prolog"]
    walls, cpus = zip(*took["prolog"], strict=True)
    beside = ", ".join(
        f"{words} {median(wall for wall, _ in took[name]):.2f} s"
        for name, words in (("pass", "python3 -c pass"), ("version", "pytest --version"))
    )
    yield Figure("prolog_wall_s", round(median(walls), 2), "≤ 0.5", f"worst of {RUNS} {max(walls):.2f} s; {beside}")
    yield Figure("prolog_cpu_s", round(median(cpus), 2), "≤ 0.5", f"worst of {RUNS} {max(cpus):.2f} s, probe included")
    again, cpu = (median(times) for times in zip(*reused, strict=True))
    yield Figure("prolog_reused_wall_s", round(again, 2), "-", f"with a fresh verdict; {cpu:.2f} s of CPU")


def _measured(reuse_s: int, names: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    node = with_file(healthy_p5(), SETTINGS, f'mode = "drain"\nreuse_s = {reuse_s}\n')
    commands = json.dumps({name: COMMANDS[name] for name in names})
    with entered(with_file(node, "/opt/clusterproof", Link(sys.prefix)), "gpu001") as running:
        ran = running.run([sys.executable, "-c", MEASURE, commands, str(RUNS)], timeout=300)
    told: dict[str, list[tuple[float, float]]] = json.loads(ran.stdout)
    return told
