"""Whatever happens to a node, its sampler, sshd or connection: its kernel's messages are reported, exactly once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.core.evidence import NodeEvidence
from clusterproof.plugins.transport.gather import gather
from clusterproof.plugins.watch import visits
from clusterproof.plugins.watch.own_health import CLOCK, REBOOT, SILENT
from tests.testbed.clock import settable
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5
from tests.watch.conditions import TIMEOUT_S
from tests.watch.outages import CLOSED, OUTAGES, boot_again, kill_sampler, make_quick, xid, xids
from tests.watch.watched_bed import Watched, samplers, watched

pytestmark = needs_cluster
NAMES = [outage.node for outage in OUTAGES]


def test_no_outage_of_a_node_costs_an_alert_or_repeats_one_or_leaves_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_quick(monkeypatch)
    threads, files = threading.active_count(), open_files()
    with testbed({name: healthy_p5(name) for name in NAMES}) as bed:
        settable(bed.nodes["clock"])
        with watched(bed, monkeypatch, tmp_path / "kept") as watch:
            watch.until_sampled(*NAMES)
            each(watch, 79, NAMES)
            for outage in OUTAGES:
                outage.act(watch, outage.node)
                if not outage.is_off:
                    xid(watch, outage.node, 95)
            for outage in OUTAGES:
                if outage.is_silent:
                    watch.until_said(SILENT, node=outage.node)
                outage.mend(watch, outage.node)
            watch.until_sampled(*NAMES)
            each(watch, 48, NAMES)
            watch.until(lambda: all(len(watch.of(REBOOT, name)) for name in NAMES[-2:]), "reboots")
            watch.until(lambda: all(is_over(watch, name, "79") for name in NAMES[-2:]), "the end of what was before")
            for outage in OUTAGES:
                name = outage.node
                assert xids(watch, name) == (["79", "48"] if outage.is_off else ["79", "95", "48"]), name
                kinds_of = {
                    rule: tuple(change.kind.value for change in watch.of(rule, name))
                    for rule in (SILENT, REBOOT, CLOCK)
                }
                assert {rule: kinds for rule, kinds in kinds_of.items() if kinds} == dict(outage.said), name
        for name in NAMES:
            watch.until(lambda name=name: not samplers(bed.nodes[name]), f"the end of {name}'s samplers")  # type: ignore[misc]
    assert threading.active_count() <= threads
    assert open_files() <= files


def test_what_is_logged_while_a_boot_is_visited_and_the_sampler_is_gone_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_quick(monkeypatch)
    has_asked, is_free = threading.Event(), threading.Event()

    def held(*arguments: Any) -> dict[str, NodeEvidence]:
        nodes = gather(*arguments)
        has_asked.set()
        is_free.wait(TIMEOUT_S)
        return nodes

    with testbed({"gpu001": healthy_p5("gpu001")}) as bed, watched(bed, monkeypatch) as watch:
        watch.until_sampled("gpu001")
        monkeypatch.setattr(visits, "gather", held)
        bed.stop("gpu001")
        boot_again(healthy_p5)(watch, "gpu001")
        watch.until(has_asked.is_set, "the visit of the new boot")
        kill_sampler(watch, "gpu001")
        xid(watch, "gpu001", 95)
        watch.until_sampled("gpu001")
        is_free.set()
        watch.until(lambda: xids(watch, "gpu001") == ["95"], "Xid 95")


def open_files() -> int:
    """This process's number of open files, including sockets and pipes."""
    return len(list(Path("/proc/self/fd").iterdir()))


def each(watch: Watched, code: int, names: Sequence[str]) -> None:
    """Each of these nodes logs that Xid, and it is reported."""
    for name in names:
        xid(watch, name, code)
    for name in names:
        watch.until(lambda name=name: str(code) in xids(watch, name), f"Xid {code} of {name}")  # type: ignore[misc]


def is_over(watch: Watched, name: str, code: str) -> bool:
    return any(
        change.kind.value == CLOSED and change.key.device.endswith(code) for change in watch.of("gpu.no_xid", name)
    )
