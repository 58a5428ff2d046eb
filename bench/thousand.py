"""What it costs to watch a thousand nodes over real connections to a real sshd.

As many nodes as this machine's memory allows are served over ssh by a program that replays a sampler's ticks without
sampling; the other streams are replayed here. The watch is a separate process, so its CPU time and memory are those of
a real watch; ssh_config and known_hosts have a line for each node.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.figure import Figure
from bench.watched_streams import hello_line, tick_line
from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, load
from clusterproof.plugins.core.interning import Interning
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.transport import Limits, Program
from clusterproof.plugins.watch import sampler_session as lines
from clusterproof.plugins.watch.controller import Controller, WatchSettings, release_memory
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.overlay import boot_of
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.sampler_session import SamplerOptions, SessionEvent
from clusterproof.plugins.watch.updates import UpdateStream
from clusterproof.plugins.watch.watch import Watch

ROOT = Path(__file__).parents[1]
NODES = 1_000
BYTES_OF_ONE = 10 << 20  # for a node's sshd, shell and Python
EVERY_S, TICKS = 10.0, 6
SETTLE_S = 900.0  # at most, for log-ins and the first ticks
NAMES = [f"gpu{number:04d}" for number in range(NODES)]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + 43 * "A"
SIMULATED = """
import select, sys, time
hello, *ticks = sys.stdin.buffer.readline().split(b"|")
print(sys.argv[1], hello.decode(), flush=True)
at = 0
due = time.monotonic()
while True:
    while time.monotonic() < due:
        if select.select([0], [], [], max(0, due - time.monotonic()))[0] and not sys.stdin.buffer.read1(4096):
            sys.exit()
    due += float(sys.argv[2])
    print(sys.argv[1], ticks[at % len(ticks)].decode(), flush=True)
    at += 1
"""


def of_nodes() -> Iterator[Figure]:
    """CPU and memory of a watch of a thousand nodes."""
    from tests.testbed import needs
    from tests.testbed.cluster import testbed
    from tests.testbed.node import healthy_cpu

    if needs.needs_cluster.args[0]:
        yield Figure("watch_1000_cpu_of_a_core_percent", None, "≤ 2", str(needs.needs_cluster.kwargs["reason"]))
        return
    with testbed({"node": healthy_cpu()}) as bed:
        real = min(NODES, _available() // BYTES_OF_ONE)
        command = bed.command(
            ["prlimit", "--nofile=1024:", sys.executable, "-m", "bench.thousand", bed.addresses["node"], str(real)]
        )
        environment = {"HOME": str(bed.home), "PATH": "/usr/bin:/bin"}
        entry = bed.ssh_config.read_text()
        bed.ssh_config.write_text("".join(entry.replace("Host node", f"Host {name}") for name in NAMES))
        with bed.known_hosts.open("a", encoding="utf-8") as known:
            known.writelines(f"{name} {KEY}\n" for name in NAMES)
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=1800)
    figures = json.loads(ended.stdout.splitlines()[-1])
    answered = f"{real} over real connections ({figures['answered']} answered)"
    of = f"{answered}, {NODES - real} replayed, {EVERY_S:.0f} s a tick"
    threads = f"{figures['threads']} threads, load {os.getloadavg()[0]:.0f}"
    yield Figure("watch_1000_cpu_of_a_core_percent", figures["cpu_percent"], "≤ 2", f"{of}; {threads}")
    yield Figure("watch_1000_memory_mb", figures["memory_mb"], "≤ 200", _memory(figures))


def _available() -> int:
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def _memory(figures: dict[str, float]) -> str:
    return f"resident; {figures['peak_mb']} at the first visit's peak, {figures['before_mb']} before there were nodes"


def watch(address: str, real: int) -> dict[str, float]:
    """Run the watch; returns the figures."""
    names = NAMES
    targets = tuple(Target(name, address=address, instance_type="p5.48xlarge") for name in names)
    cluster = Cluster("bench", "ssh", targets)
    state = Watch(Evaluator(cluster, NO_POLICY), EVERY_S, names, time.monotonic())
    before_mb = _resident_mb()
    visited = _visited(names)
    hello = hello_line(boot_of(visited[names[0]]))  # with another boot id, all would be visited again
    state.evidence(visited, time.monotonic())
    del visited
    release_memory()
    random = Random(1)
    ticks = [tick_line(random, at, EVERY_S) for at in range(16)]
    _simulate(hello, ticks)
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder), EVERY_S, print)
        settings = WatchSettings(SamplerOptions(EVERY_S), Limits(connect_s=30.0), ProbeOptions())
        some = replace(cluster, targets=targets[:real])
        running = Controller(some, state, settings, recording, lambda _: None)
        running._connect()
        over = threading.Event()
        threading.Thread(target=_replay, args=(running, names[real:], hello, ticks, over), daemon=True).start()
        loop = threading.Thread(target=running._loop, daemon=True)
        loop.start()
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until and any(state._nodes[name].ticks < 2 for name in names):
            time.sleep(1.0)
        ticks_before = {name: state._nodes[name].ticks for name in names}
        began, spent = time.monotonic(), _cpu_s()
        time.sleep(TICKS * EVERY_S)
        percent = 100 * (_cpu_s() - spent) / (time.monotonic() - began)
        memory, peak = _resident_mb(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
        answered = sum(state._nodes[name].ticks - ticks_before[name] >= TICKS - 1 for name in names[:real])
        threads = threading.active_count()
        over.set()
        running.stop()
        loop.join()
        running._end()
    figures = {"cpu_percent": round(percent, 2), "memory_mb": memory, "peak_mb": round(peak, 1), "before_mb": before_mb}
    return {**figures, "answered": answered, "threads": threads}


def _visited(names: list[str]) -> dict[str, NodeEvidence]:
    """Every node's answers at the first visit: one node's, under each name."""
    text = (ROOT / "fixtures/demo/nodes/gpu001.json").read_text(encoding="utf-8")
    once = Interning().intern
    return {name: once(load(text.replace("gpu001", name).replace("GPU-", f"GPU-{name}"))) for name in names}


def _simulate(hello: bytes, ticks: list[bytes]) -> None:
    """Have ssh connections run a program that only replays ticks."""
    text = b"|".join([hello.split(b" ", 1)[1].strip(), *(tick.split(b" ", 1)[1].strip() for tick in ticks)])

    def started(_text: str, nonce: str, _sudo: bool, *, on_stdin: bool, word: str) -> Program:  # noqa: ARG001
        assert on_stdin
        return Program(f"python3 -uc '{SIMULATED}' {nonce} {EVERY_S}", text + b"\n")

    vars(lines).update(sampler=lambda *_: "", started_by_shell=started)


def _replay(running: Controller, names: list[str], hello: bytes, ticks: list[bytes], over: threading.Event) -> None:
    """Replay the other nodes' streams, spread over each tick."""
    streams = {name: UpdateStream("cp") for name in names}
    for name in names:
        _receive(running, name, streams[name], hello)
    at, pieces = 0, 20
    while not over.is_set():
        for piece in range(pieces):
            for name in names[piece::pieces]:
                _receive(running, name, streams[name], ticks[at % len(ticks)])
            over.wait(EVERY_S / pieces)
        at += 1


def _receive(running: Controller, name: str, stream: UpdateStream, line: bytes) -> None:
    for update in stream.updates(line):
        running._events.put(SessionEvent(name, update, time.monotonic()))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * resource.getpagesize() / 1e6, 1)


if __name__ == "__main__":
    print(json.dumps(watch(sys.argv[1], int(sys.argv[2]))))
