"""What a watch costs: the sampler on a node, a sample on disk, and a thousand nodes on the watching machine."""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench.figure import Figure
from bench.runs import DEMO, cpu_s
from bench.watched_streams import hello_line, tick_line
from clusterproof.plugins.agent.payload import cursor_word, new_nonce, sampler, started_by_shell
from clusterproof.plugins.agent.reading import NO_CURSOR
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import load
from clusterproof.plugins.core.policy import NO_POLICY
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.training_run.sample_columns import SUFFIX
from clusterproof.plugins.watch.evaluator import Evaluator
from clusterproof.plugins.watch.recording import Recording
from clusterproof.plugins.watch.updates import UpdateStream
from clusterproof.plugins.watch.watch import Watch
from tests.testbed import needs
from tests.testbed.node import entered, healthy_p5

EVERY_S, TICKS = 10.0, 60
NODES = 1_000
BENCH_EVERY_S = 0.5  # instead of an interval that would take ten minutes


def on_the_node() -> Iterator[Figure]:
    """The sampler's CPU per tick and its memory, on a fake node with 8 GPUs and 32 EFA devices."""
    if needs.needs_nodes.args[0]:
        yield Figure("sampler_cpu_of_a_core_percent", None, "≤ 0.1", str(needs.needs_nodes.kwargs["reason"]))
        return
    text, word = sampler(BENCH_EVERY_S, "/"), cursor_word(NO_CURSOR)
    program = started_by_shell(text, new_nonce(), sudo=False, on_stdin=True, word=word)
    pipe = subprocess.PIPE
    with entered(healthy_p5()) as node:
        process = node.start(["/bin/sh", "-c", program.command], stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT)
        assert process.stdin
        assert process.stdout
        process.stdin.write(program.stdin)
        process.stdin.flush()
        for _ in range(12):  # until all GPUs have reported
            process.stdout.readline()
        pids = [pid for pid in _below(process.pid) if "python" in _command(pid)]
        before = sum(map(_ran_s, pids))
        for _ in range(TICKS):
            process.stdout.readline()
        tick_s = (sum(map(_ran_s, pids)) - before) / TICKS
        pss_mib = sum(map(_pss_kib, pids)) / 1024
        process.stdin.close()
        process.stdout.close()
    detail = f"{1000 * tick_s:.1f} ms a tick, {len(pids)} processes; the driver is a double"
    yield Figure("sampler_cpu_of_a_core_percent", round(100 * tick_s / EVERY_S, 3), "≤ 0.1", detail)
    yield Figure("sampler_memory_mib", round(pss_mib, 1), "≤ 25", "proportional set size, all processes together")


def who_watches() -> Iterator[Figure]:
    """Decode, evaluate and record this many nodes' streams, without the connections."""
    evidence = load((DEMO / "nodes" / "gpu001.json").read_bytes())
    names = [f"gpu{number:04d}" for number in range(NODES)]
    cluster = Cluster("bench", "ssh", tuple(Target(name, instance_type="p5.48xlarge") for name in names))
    watch = Watch(Evaluator(cluster, NO_POLICY), EVERY_S, names, 0.0)
    watch.evaluator.evaluate_all(
        {name: replace(evidence, node=name) for name in names[:50]}
    )  # the others cost the same
    random = Random(1)
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording(Path(folder), EVERY_S, print)
        streams = {name: UpdateStream("cp") for name in names}
        for name in names:
            _feed(watch, recording, name, streams[name], hello_line(), 0.0)
        ticks = [tick_line(random, at, EVERY_S) for at in range(16)]
        spent = 0.0
        for at, line in enumerate(ticks):
            before = cpu_s(resource.RUSAGE_SELF)
            for name in names:
                _feed(watch, recording, name, streams[name], line, at * EVERY_S)
            watch.check_silence(at * EVERY_S)
            spent += cpu_s(resource.RUSAGE_SELF) - before
        recording.close(0.0)
        size = sum(path.stat().st_size for path in Path(folder).glob(f"*{SUFFIX}"))
    a_node_s = spent / len(ticks) / NODES
    detail = f"{1e6 * a_node_s:.0f} µs a node and tick; {NODES:,} nodes each {EVERY_S:.0f} s, connections left out"
    yield Figure("watch_cpu_of_a_core_percent", round(100 * a_node_s * NODES / EVERY_S, 2), "≤ 2", detail)
    yield Figure("watch_bytes_a_sample", round(size / NODES / len(ticks)), "≤ 350", "8 GPUs; the header's share in it")


def _feed(watch: Watch, recording: Recording, name: str, stream: UpdateStream, line: bytes, now: float) -> None:
    for update in stream.updates(line):
        watch.update(name, update, now)
        recording.record(name, update, 1.7e9 + now, now)


def _below(pid: int) -> list[int]:
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child_pid for child in children for child_pid in (child, *_below(child))]


def _command(pid: int) -> str:
    return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0])


def _ran_s(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _pss_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
