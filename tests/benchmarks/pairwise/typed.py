"""Runs that measure pairs, as typed by a user."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterproof.plugins.core.result import Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.reports.results import read_results
from tests.benchmarks.launchers.launched import of_run
from tests.testbed.cluster import Testbed

ROOT = Path(__file__).parents[3]
NAMES = tuple(f"n{number}" for number in range(1, 9))
ONE_PORT, SLOW_PORT = "200mbit", "100mbit"
CHECKS = tuple(str(ROOT / "checks" / "perf" / f"test_{name}.py") for name in ("pairwise", "groups"))
QUICK_IPERF = ("--meter", "iperf3", "--meter-options=-t 1 -O 0")
# Slow links and long runs on them, beside which the delays of a busy machine are small.
NCCL_PORTS = ("80mbit", "40mbit")
QUICK_NCCL = ("--meter", "nccl-tests", "--meter-size", "2M", "--meter-options=-n 3 -w 0", "--ranks-per-node", "1")
LIBFABRIC = (
    *("--meter", "fi_pingpong", "--meter-size", "64K"),
    *("--meter-options=-p tcp -I 8", "--meter-env", "FI_TCP_IFACE=eth0", "--pairs-at-once", "1"),
)  # fmt: skip
OWN_TEST = """import pytest

@pytest.mark.perf
def test_all_were_measured(pairwise):
    assert len(pairwise.campaigns[0].by_node) == 8
"""


@dataclass(frozen=True)
class Run:
    """What one run printed and wrote."""

    exit: int
    output: str
    results: Sequence[Result]
    recording: Path

    def verdicts(self, check: str) -> dict[str, Verdict]:
        return {result.node: result.verdict for result in self.results if result.check == f"network.{check}"}

    def failed(self, check: str) -> list[str]:
        return sorted(name for name, verdict in self.verdicts(check).items() if verdict is Verdict.FAIL)


def run(bed: Testbed, folder: Path, *options: str) -> Run:
    """Run `pytest OPTIONS -m perf` on the cluster's network, recording unless it is a replay."""
    results, recording = folder / "results.jsonl", folder / "recording"
    results.unlink(missing_ok=True)
    recorded = "--record" in options or any(option.startswith("replay:") for option in options)
    kept = [] if recorded else ["--record", str(recording)]
    command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml")]
    command += ["--results", str(results), *kept, "--no-report", "-p", "no:cacheprovider", "-m", "perf", "-v"]
    ran = bed.run([*command, *options, *(() if set(CHECKS) & {*options} else CHECKS)], timeout=600)
    output = (ran.stdout + ran.stderr).decode()
    return Run(ran.returncode, output, read_results(results) if results.exists() else [], recording)


def interrupted(bed: Testbed, recording: Path, stop: signal.Signals, *options: str) -> str:
    """The output of a run that is stopped in the middle of its second round."""
    command = [sys.executable, "-m", "pytest", f"--rootdir={ROOT}", "-c", str(ROOT / "pyproject.toml"), "--no-report"]
    command += ["--record", str(recording), "-p", "no:cacheprovider", "-m", "perf", "-k", "pairwise or straggler"]
    journal = recording / "pairwise.jsonl"
    with subprocess.Popen(
        bed.command([*command, *options, *CHECKS]),
        env={**os.environ, "HOME": str(bed.home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        until = time.monotonic() + 600
        while not (journal.exists() and journal.read_text().count("\n") > 2):
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        while not any(b"iperf3" in line.encode() for name in NAMES[:4] for line in of_run(bed.nodes[name].root)):
            assert time.monotonic() < until
            time.sleep(0.1)
        running.send_signal(stop)
        output, _ = running.communicate(timeout=600)
    assert running.returncode == 2, output
    return output


@contextlib.contextmanager
def wires(
    bed: Testbed,
    names: Sequence[str],
    slow: Sequence[str] = (),
    bare: Sequence[str] = (),
    ports: tuple[str, str] = (ONE_PORT, SLOW_PORT),
) -> Iterator[None]:
    """Limit what nodes' ports send, `slow` ones to less; `bare` ones are left alone."""
    rest = [name for name in names if name not in (*slow, *bare)]
    with bed.slow_group(rest, ports[0]), bed.slow_group(slow, ports[1]):
        yield
