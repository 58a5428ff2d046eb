"""Runs a watch through an hour of outages in six minutes: counts lost and repeated alerts, leftovers, memory growth.

The nodes are the testbed's with real sshds, ticks take one second instead of ten, and the watch is its own process.
Each node has a thread here that logs a new Xid in the node's kernel log, causes an outage, logs another Xid during it,
and ends the outage.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from statistics import mean

from bench.figure import Figure
from bench.watch_process import WatchProcess, watch_process
from clusterproof.plugins.watch.own_health import CLOCK, REBOOT
from tests.testbed import needs
from tests.testbed.clock import settable
from tests.testbed.cluster import Testbed, testbed
from tests.testbed.node import healthy_p5
from tests.testbed.pci import GPU_BUSES
from tests.watch.outages import OUTAGES, xid
from tests.watch.watched_bed import Watched, samplers

EVERY_S = 1.0
SECONDS = 360.0  # an hour at ten seconds a tick
NAMES = tuple(f"gpu{number:03d}" for number in range(1, 7))
CODES = (48, 79, 95, 74, 64, 119, 46, 62, 54, 120, 136, 140)
LOOK_S = 5.0  # between readings of memory
END_S = 150.0  # for samplers to end; one whose connection is cut takes two minutes


@dataclass
class Tally:
    """What the threads of all nodes have done."""

    logged: set[tuple[str, int, int]] = field(default_factory=set)  # node, bus, code
    outages: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)


def an_hour() -> Iterator[Figure]:
    """Run six nodes for an hour of ticks, with some outage on each at any time."""
    if needs.needs_cluster.args[0]:
        yield Figure("chaos_alerts_lost", None, "0", str(needs.needs_cluster.kwargs["reason"]))
        return
    tally = Tally()
    with (
        tempfile.TemporaryDirectory() as folder,
        testbed({name: healthy_p5(name) for name in NAMES}) as bed,
    ):
        for node in bed.nodes.values():
            settable(node)
        with watch_process(bed, Path(folder, "kept"), EVERY_S) as watch:
            watch.until_sampled(*NAMES)
            before = watch.threads, watch.files
            _let_happen(watch, tally)
            watch.until_sampled(*NAMES)
            _wait_for(lambda: watch.threads <= before[0] and watch.files <= before[1])
            after = watch.threads, watch.files
            lost = [change for change in sorted(tally.logged) if not _is_said(watch, *change)]
            opened = [change for change in watch.of("gpu.no_xid") if change.kind.value == "opened"]
            bed.cut_wire(NAMES[0])
            booted = len(watch.of(REBOOT)), len(watch.of(CLOCK))
        _wait_for(lambda: not _left(bed))
        left = _left(bed)
    keys = [(change.key.node, change.key.device) for change in opened]
    happened = ", ".join(f"{count} {name}" for name, count in sorted(tally.outages.items()))
    detail = f"{len(tally.logged)} Xids through {happened} {(*lost, *tally.failed)[:3] or ''}"
    yield Figure("chaos_alerts_lost", len(lost) + len(tally.failed), "0", detail)
    yield Figure("chaos_alerts_repeated", len(keys) - len(set(keys)), "0", f"{booted[0]} boots, {booted[1]} clocks set")
    yield Figure("chaos_processes_left", left, "0", f"on {len(NAMES)} nodes, one behind a cut wire")
    yield Figure("chaos_threads_grown", after[0] - before[0], "0", f"in who watches, from {before[0]}")
    yield Figure("chaos_files_grown", after[1] - before[1], "0", f"open files in who watches, from {before[1]}")
    yield _memory(tally.memory_mib)


def _memory(mib: list[float]) -> Figure:
    """Memory from the second quarter on; before that, not all facts of each node are known."""
    quarters = [mean(mib[at * len(mib) // 4 : (at + 1) * len(mib) // 4]) for at in range(4)]
    detail = (
        f"{', '.join(f'{quarter_mib:.1f}' for quarter_mib in quarters)} MiB in its quarters: the second to the last"
    )
    return Figure("chaos_memory_growth_percent", round(100 * (quarters[3] / quarters[1] - 1), 1), "≤ 5", detail)


def _left(bed: Testbed) -> int:
    """How many sampler processes remain."""
    return sum(len(samplers(node)) for node in bed.nodes.values())


def _wait_for(is_so: Callable[[], bool]) -> None:
    """Wait as long as a sampler whose connection is cut may take to end."""
    ended = time.monotonic() + END_S
    while not is_so() and time.monotonic() < ended:
        time.sleep(0.1)


def _let_happen(watch: WatchProcess, tally: Tally) -> None:
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=_outage, args=(watch, tally, name, until)) for name in NAMES]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        tally.memory_mib.append(watch.resident_mib)
        time.sleep(LOOK_S)


def _outage(watch: Watched, tally: Tally, name: str, until: float) -> None:
    """Run one node's hour."""
    random = Random(name)
    ours = list(product(GPU_BUSES, CODES))
    random.shuffle(ours)
    has_booted = False  # a node that has booted has a clock that cannot be set
    while time.monotonic() < until and len(ours) > 2:
        outage = random.choice(
            [outage_possible for outage_possible in OUTAGES if outage_possible.node != "clock" or not has_booted]
        )
        try:
            _log(watch, tally, name, *ours.pop())
            outage.act(watch, name)
            if not outage.is_off:
                bus, code = ours.pop()
                _xid(watch, tally, name, bus, code)
            time.sleep(random.uniform(1.0, 10.0))
            outage.mend(watch, name)
            has_booted = has_booted or outage.is_off
            watch.until_sampled(name, more=2)
            if not outage.is_off:
                watch.until(lambda bus=bus, code=code: _is_said(watch, name, bus, code), f"Xid {code} of {name}")  # type: ignore[misc]
        except AssertionError as problem:
            tally.failed.append(f"{outage.node}: {str(problem)[:80]}")
        tally.outages[outage.node] = tally.outages.get(outage.node, 0) + 1


def _log(watch: Watched, tally: Tally, name: str, bus: int, code: int) -> None:
    """Log an Xid, and wait until the watch reports it."""
    _xid(watch, tally, name, bus, code)
    watch.until(lambda: _is_said(watch, name, bus, code), f"Xid {code} of {name}")


def _xid(watch: Watched, tally: Tally, name: str, bus: int, code: int) -> None:
    tally.logged.add((name, bus, code))
    xid(watch, name, code, bus)


def _is_said(watch: Watched, name: str, bus: int, code: int) -> bool:
    names = f"GPU {list(GPU_BUSES).index(bus)},", f"0000:{bus:02x}:00.0,"  # the latter until its driver reports
    return any(
        change.key.device.startswith(names) and change.key.device.endswith(f" {code}")
        for change in watch.of("gpu.no_xid", name)
    )
