"""What a gate of a large cluster costs, as real processes against a stand-in for the API server.

Rounds follow a simulated clock, so nothing waits. Measured are CPU time and memory of the main process and of those
that evaluate, not elapsed time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from bench.figure import Figure
from clusterproof.plugins.command_line import gate_run
from clusterproof.plugins.command_line.gate_run import Rounds
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.kubernetes import access
from clusterproof.plugins.kubernetes.gate import REFRESH_S, TRUE, Health
from clusterproof.plugins.kubernetes.gate.metrics import GateMetrics
from clusterproof.plugins.kubernetes.gate.round import KeptVerdict, keep_verdicts, kept_verdicts
from clusterproof.plugins.transport.kubernetes.report_cache import REPORTS, REST_S, AgentPods
from clusterproof.plugins.transport.kubernetes.shares import MAX_REST_S, NODE_S, NodeShare

ROOT = Path(__file__).parents[1]
NODES = 5000
EVERY_S = 60.0
IN_REST = 4  # rounds between two that confirm the current state
FIT = Health(TRUE, "ChecksPassed", "63 checks found no fault")
CERTIFICATE = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=stand-in")
LOOK_S = 0.2
MAIN = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from clusterproof.plugins.kubernetes import access
access.ACCOUNT = Path({folder!r})
{main}
"""


def of_large_cluster() -> Iterator[Figure]:
    """CPU and memory of a gate at rest with 5,000 nodes, or with BENCH_NODES nodes."""
    nodes = int(os.environ.get("BENCH_NODES", NODES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = ["-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.crt", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run([*CERTIFICATE, *files], check=True, capture_output=True)
        (folder / "token").write_text("token")
        command = [sys.executable, "-m", "bench.api_stand_in", name, str(nodes)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout
                port = server.stdout.readline().strip()
                spent, peak_mb = _watched([sys.executable, "-m", __name__, name, port, str(nodes)])
            finally:
                server.kill()
    yield from _figures(spent, peak_mb, nodes)


def _figures(spent: dict[str, float], peak_mb: dict[str, float], nodes: int) -> Iterator[Figure]:
    rest_s = min(max(REST_S, NODE_S * nodes), MAX_REST_S)
    per_s = {
        "rest": spent["rest"] * (IN_REST + 1) / REFRESH_S,
        "heartbeats": (spent["heartbeats"] - spent["rest"]) / REFRESH_S,
        "listing": (spent["listing"] - spent["rest"]) / REST_S,
        "evaluation": (spent["evaluation"] - spent["rest"]) / spent["evaluated"] * nodes / rest_s,
    }
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    in_words = ", ".join(f"{word} {100 * share:.1f}" for word, share in per_s.items())
    yield Figure("gate_cpu_of_a_core_percent", round(100 * sum(per_s.values()), 1), "≤ 5", f"{in_words}; {load}")
    for word, often in (("rest", EVERY_S), ("heartbeats", REFRESH_S), ("listing", REST_S)):
        yield Figure(f"gate_{word}_cpu_s", round(spent[word], 2), "–", f"of {nodes} nodes each {often:.0f} s")
    detail = f"{spent['evaluation']:.1f} s of {spent['evaluated']:.0f} nodes at once, of {nodes} each {rest_s:.0f} s"
    of_one = 1000 * spent["evaluation"] / spent["evaluated"]
    yield Figure("gate_evaluation_cpu_ms_per_node", round(of_one, 1), "–", detail)
    detail = f"proportional; {peak_mb['own']:.0f} of the process that stays, {spent['stays_mb']:.0f} after a round"
    yield Figure("gate_memory_mb", round(peak_mb["all"]), "≤ 300", detail)


def _watched(command: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """What a gate reports of itself, and the peak memory of the gate and its children."""
    peak_mb = {"own": 0.0, "all": 0.0}
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
        reader.start()
        while process.poll() is None:
            own, *others = list(_proportional_mb(process.pid)) or [0.0]
            peak_mb = {"own": max(peak_mb["own"], own), "all": max(peak_mb["all"], own + sum(others))}
            time.sleep(LOOK_S)
        reader.join()
    if process.returncode:
        raise RuntimeError(f"the gate ended with {process.returncode}: {''.join(lines)[-1000:]}")
    return json.loads(lines[-1]), peak_mb


def _proportional_mb(pid: int) -> Iterator[float]:
    """Memory of a process and its children, with shared pages divided among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        yield next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                yield from _proportional_mb(int(child))
    except (OSError, StopIteration):  # it has ended meanwhile
        return


class MeasuredGate:
    """A gate's process, and what its rounds cost."""

    def __init__(self, folder: Path, port: str) -> None:
        os.environ.update(KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT=port)
        access.ACCOUNT = folder
        gate_run.MAIN = MAIN.format(root=str(ROOT), folder=str(folder), main=gate_run.MAIN)
        gc.set_threshold(*gate_run.GC_THRESHOLDS)
        self.keep = folder / "keep"
        self.keep.mkdir()
        option = argparse.Namespace(x="k8s:in-cluster", every=int(EVERY_S), region="", profile="")
        self.rounds = Rounds(option, [], self.keep, GateMetrics(EVERY_S), threading.Event())
        self.now = time.time()

    def as_if_evaluated(self, nodes: int) -> None:
        """Keep every node's verdict as after the first rounds, whose repetition would only cost time."""
        with mock.patch.object(Rounds, "_evaluate", self._noted):
            self.round(0.0)
        names = [f"gpu{number:04d}" for number in range(1, nodes + 1)]
        keep_verdicts(self.keep, dict.fromkeys(names, KeptVerdict(FIT, self.now)))

    def _noted(self, share: NodeShare, agents: AgentPods, began: float) -> None:
        share.evaluated(agents.own, began, is_open=False, is_same=True)
        share.rested_at = began

    def round(self, after_s: float) -> float:
        """CPU seconds of a round, including the processes that evaluate."""
        self.now += after_s
        before = _cpu_s()
        clock = SimpleNamespace(time=lambda: self.now, monotonic=time.monotonic)
        with mock.patch.object(gate_run, "time", clock):
            self.rounds.make()
        return _cpu_s() - before

    def evaluation(self, after_s: float) -> tuple[float, int]:
        """The same for a round that evaluates a share of the nodes and finds nothing new; also how many nodes."""
        shutil.rmtree(self.keep / REPORTS, ignore_errors=True)
        began = time.time()
        spent = self.round(after_s)
        after = kept_verdicts(self.keep)
        evaluated = [verdict for verdict in after.values() if verdict.began >= began]
        health = evaluated[0].health
        keep_verdicts(self.keep, {name: replace(verdict, health=health) for name, verdict in after.items()})
        return spent, len(evaluated)


def measure(folder: Path, port: str, nodes: int) -> dict[str, float]:
    """The figures of a gate with this many nodes."""
    gate = MeasuredGate(folder, port)
    gate.as_if_evaluated(nodes)
    gate.round(REFRESH_S)  # writes all conditions for the first time
    in_rest = [gate.round(EVERY_S) for _ in range(IN_REST)]
    heartbeats = gate.round(EVERY_S)
    gate.rounds._shares.forget()
    listing = gate.round(EVERY_S)
    stays_mb = next(_proportional_mb(os.getpid()))
    gate.evaluation(MAX_REST_S)
    evaluation, evaluated = gate.evaluation(EVERY_S)
    return {
        "rest": min(in_rest),  # on a busy machine, the lowest figure is the most accurate
        "heartbeats": heartbeats,
        "listing": listing,
        "evaluation": evaluation,
        "evaluated": evaluated,
        "stays_mb": stays_mb,
    }


def _cpu_s() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
