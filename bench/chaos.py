"""A watch through an hour of troubles in six minutes: alerts lost or repeated, what is left, memory that grows.

Nodes of the testbed with real sshds, ticks of a second in the place of ten. Each node has its own thread, which has the
kernel log an Xid that it has not logged before, lets some trouble happen, has it log another one, and mends it.
"""

from __future__ import annotations

import gc
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean

import pytest

from bench.figure import Figure
from clusterproof.plugins.watch.of_tick import CLOCK, REBOOT
from tests.testbed import needs
from tests.testbed.buses import GPU_BUSES
from tests.testbed.clock import settable
from tests.testbed.cluster import testbed
from tests.testbed.node import healthy_p5
from tests.watch.troubles import TROUBLES, make_quick, xid
from tests.watch.watched_bed import Watched, samplers, watched

SECONDS = 360.0  # an hour at ten seconds a tick
NAMES = tuple(f"gpu{number:03d}" for number in range(1, 7))
CODES = (48, 79, 95, 74, 64, 119)
LOOK_S = 5.0  # at the memory
END_S = 150.0  # for samplers to end: one whose wire is cut does so after two minutes


@dataclass
class Tally:
    """What the threads of all nodes have done."""

    logged: set[tuple[str, int, int]] = field(default_factory=set)  # node, bus, code
    troubles: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)


def an_hour() -> Iterator[Figure]:
    """Six nodes, an hour of ticks, some trouble on each at any time."""
    if needs.needs_cluster.args[0]:
        yield Figure("chaos_alerts_lost", None, "0", str(needs.needs_cluster.kwargs["reason"]))
        return
    tally = Tally()
    threads = threading.active_count()
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
        testbed({name: healthy_p5(name) for name in NAMES}) as bed,
    ):
        make_quick(monkeypatch)
        for node in bed.nodes.values():
            settable(node)
        with watched(bed, monkeypatch, Path(folder, "kept")) as watch:
            watch.until_sampled(*NAMES)
            _let_happen(watch, tally)
            watch.until_sampled(*NAMES)
            said = [one for one in watch.of("gpu.no_xid") if one.kind.value != "closed"]
            bed.cut_wire(NAMES[0])
            booted = len(watch.of(REBOOT)), len(watch.of(CLOCK))
        ended = time.monotonic() + END_S
        while (left := sum(len(samplers(node)) for node in bed.nodes.values())) and time.monotonic() < ended:
            time.sleep(0.1)
    keys = [(one.key.node, one.key.device) for one in said]
    happened = ", ".join(f"{count} {name}" for name, count in sorted(tally.troubles.items()))
    lost = len(tally.logged) - len(set(keys)) + len(tally.failed)
    yield Figure(
        "chaos_alerts_lost", lost, "0", f"{len(tally.logged)} Xids through {happened} {tally.failed[:3] or ''}"
    )
    yield Figure("chaos_alerts_repeated", len(keys) - len(set(keys)), "0", f"{booted[0]} boots, {booted[1]} clocks set")
    yield Figure("chaos_processes_left", left, "0", f"on {len(NAMES)} nodes, one behind a cut wire")
    yield Figure("chaos_threads_left", threading.active_count() - threads, "0", "in who watches")
    quarter = len(tally.memory_mib) // 4
    before, after = mean(tally.memory_mib[quarter : 2 * quarter]), mean(tally.memory_mib[-quarter:])
    detail = f"{before:.0f} MiB in the second quarter, {after:.0f} MiB in the last"
    yield Figure("chaos_memory_growth_percent", round(100 * (after / before - 1), 1), "≤ 5", detail)


def _let_happen(watch: Watched, tally: Tally) -> None:
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=_trouble, args=(watch, tally, name, until)) for name in NAMES]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        gc.collect()
        tally.memory_mib.append(_resident_mib())
        time.sleep(LOOK_S)


def _trouble(watch: Watched, tally: Tally, name: str, until: float) -> None:
    """The hour of one node."""
    random = Random(name)
    ours = list(product(GPU_BUSES, CODES))
    random.shuffle(ours)
    has_booted = False  # then its clock is not one that can be set
    while time.monotonic() < until and len(ours) > 2:
        trouble = random.choice([one for one in TROUBLES if one.node != "clock" or not has_booted])
        try:
            _log(watch, tally, name, *ours.pop())
            trouble.act(watch, name)
            if not trouble.is_off:
                bus, code = ours.pop()
                _xid(watch, tally, name, bus, code)
            time.sleep(random.uniform(1.0, 10.0))
            trouble.mend(watch, name)
            has_booted = has_booted or trouble.is_off
            watch.until_sampled(name, more=2)
            if not trouble.is_off:
                watch.until(lambda bus=bus, code=code: _is_said(watch, name, bus, code), f"Xid {code} of {name}")  # type: ignore[misc]
        except AssertionError as problem:
            tally.failed.append(f"{trouble.node}: {str(problem)[:80]}")
        tally.troubles[trouble.node] = tally.troubles.get(trouble.node, 0) + 1


def _log(watch: Watched, tally: Tally, name: str, bus: int, code: int) -> None:
    """It logs an Xid, and that is said."""
    _xid(watch, tally, name, bus, code)
    watch.until(lambda: _is_said(watch, name, bus, code), f"Xid {code} of {name}")


def _xid(watch: Watched, tally: Tally, name: str, bus: int, code: int) -> None:
    tally.logged.add((name, bus, code))
    xid(watch, name, code, bus)


def _is_said(watch: Watched, name: str, bus: int, code: int) -> bool:
    gpu = f"GPU {list(GPU_BUSES).index(bus)},"
    return any(
        one.key.device.startswith(gpu) and one.key.device.endswith(f" {code}") for one in watch.of("gpu.no_xid", name)
    )


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)
