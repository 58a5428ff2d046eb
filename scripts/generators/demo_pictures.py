"""Simulates further data that the demo's page shows: earlier runs, slow pairs, a slow rank."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from math import log
from pathlib import Path
from random import Random

from bench.clusters import Simulated, campaign
from clusterproof.plugins.benchmarks.pairwise.journal import Journal, write
from clusterproof.plugins.benchmarks.pairwise.planning import plan
from clusterproof.plugins.core import __version__
from clusterproof.plugins.core.record import replace
from clusterproof.plugins.core.result import Measured, Result
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.pairs import Measurement, Pair, pair
from clusterproof.reports.document.demo import DAY_S, HISTORY, PAIRS, RUNS, STEPS
from clusterproof.reports.history import PastRun
from clusterproof.reports.history.store import write_run

BEGAN_S = 1_790_000_000.0
SIZE_BYTES = 8 * 2**30
RACK = 4  # nodes
FAST_GB_PER_S, SLOW_GB_PER_S = 399.0, 315.0
BUSBW = "busbw with partners: all_reduce, 8 GiB"
SLOW_NODE, SLOW_LINK = "gpu011", ("gpu004", "gpu013")
RANKS, STEP_COUNT, SLOW_RANK = 32, 24, 19
# The earlier runs in which a check failed on a node: one flaps, one stays, one was mended, one came with an image.
FAILED = (
    ("gpu.nvlink_active", ("gpu002",), (5, 8, 9, 12, 15, 16)),
    ("gpu.no_uncorrected_ecc", ("gpu003",), (17, 18, 19)),
    ("gpu.no_xid", ("gpu011",), (3, 4, 5, 6, 7)),
    ("network.memlock", tuple(f"gpu{number:03d}" for number in range(8, 17)), tuple(range(14, RUNS))),
    ("storage.mounts_alive", ("gpu012",), (10,)),
    ("gpu.no_uncorrected_ecc", ("gpu007", "gpu008"), ()),
    ("gpu.no_xid", ("gpu003", "gpu015"), ()),
    ("gpu.driver_answers_in_time", ("gpu010",), ()),
    ("gpu.gpu_answers", ("gpu006",), ()),
    ("node.evidence_complete", ("gpu010",), ()),
    ("node.reachable", ("gpu005",), (18, 19)),
)


def write_pictures(folder: Path, names: Sequence[str]) -> None:
    """Write the three files; deterministic."""
    folder.mkdir(exist_ok=True)
    _write_history(folder / HISTORY, names)
    _write_pairs(folder / PAIRS, names)
    lines = (json.dumps(step, separators=(",", ":")) for step in _steps(names))
    (folder / STEPS).write_text("".join(f"{line}\n" for line in lines))


def _write_history(path: Path, names: Sequence[str]) -> None:
    path.unlink(missing_ok=True)
    random = Random(5)
    for number in range(1, RUNS):
        began = BEGAN_S + number * DAY_S
        results = [Result("host.boot", name, Verdict.PASS) for name in names]
        for check, nodes, runs in FAILED:
            verdict = Verdict.FAIL if number in runs else Verdict.PASS
            results += [Result(check, name, verdict) for name in nodes]
        measured = []
        for name in names:
            middle = SLOW_GB_PER_S if name == SLOW_NODE and number > RUNS - 4 else FAST_GB_PER_S
            measured.append(Measured(BUSBW, name, round(random.gauss(middle, 2.0), 1), "GB/s"))
        run = PastRun("demo", began, began + 9.0, version=__version__)
        write_run(path, run, results, measured=measured)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = DELETE")  # so that reading it creates no file beside it


def _write_pairs(path: Path, names: Sequence[str]) -> None:
    """Four racks: one node is 21 % slower with all others, and one link between two racks 35 %."""
    racks = {name: f"rack-{place // RACK + 1}" for place, name in enumerate(names)}
    links: dict[Pair, float] = {pair(*SLOW_LINK): 0.65}
    cluster = Simulated(
        tuple(names), Random(11), 0.012, racks, {SLOW_NODE: SLOW_GB_PER_S / FAST_GB_PER_S}, links, outliers=0.0
    )
    made = plan(tuple(names), racks, -log(0.95), seed=7)
    measurements = campaign(made, lambda pairs, number: map(_rounded, cluster.measure(pairs, number)))
    key = {"instance_type": "p5.48xlarge", "efa": 32, "nodes": 2, "ranks_per_node": 8, "collective": "all_reduce"}
    about = {"meter": "nccl-tests", "key": {**key, "size_bytes": SIZE_BYTES}}
    write(path, Journal(made, about, {}, tuple(measurements), ""))


def _rounded(measurement: Measurement) -> Measurement:
    busbw = measurement.reading.busbw_gb_per_s
    speed = None if busbw is None else round(busbw, 1)
    return replace(
        measurement, reading=replace(measurement.reading, busbw_gb_per_s=speed, is_correct=True, size_bytes=SIZE_BYTES)
    )


def _steps(names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Each step takes as long as its slowest rank, since the others wait for it in collectives."""
    random = Random(3)
    for step in range(1, STEP_COUNT + 1):
        work = [0.82 * random.gauss(1, 0.008) * (1.24 if rank == SLOW_RANK else 1) for rank in range(RANKS)]
        longest = max(work)
        save = 0.6 if step % 20 == 0 else 0.0
        for rank, seconds in enumerate(work):
            waits = 0.11 + longest - seconds
            computes = {"forward": seconds / 3, "backward": seconds * 2 / 3}
            parts = {**computes, "all_reduce": waits, "data": 0.012, "checkpoint": save}
            shown = {name: round(value, 3) for name, value in parts.items() if value}
            place = {"rank": rank, "host": names[rank // 8], "gpu": rank % 8}
            yield {**place, "step": step, "dur": round(sum(parts.values()), 3), "stages": shown}
