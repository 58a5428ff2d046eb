"""Whatever becomes of a node, its sampler, its sshd or the wire: what its kernel logs is said, and said once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterproof.plugins.suite.watching import line
from clusterproof.plugins.transport import staying
from clusterproof.plugins.watch.of_tick import CLOCK, REBOOT, SILENT
from tests.testbed.clock import set_clock, settable
from tests.testbed.cluster import testbed
from tests.testbed.faults import with_file
from tests.testbed.image import NodeImage
from tests.testbed.needs import needs_cluster
from tests.testbed.node import healthy_p5
from tests.watch.watched_bed import Watched, log, samplers, watched

pytestmark = needs_cluster

BOOT_ID = "/proc/sys/kernel/random/boot_id"
OPENED, CLOSED, HAPPENED = "opened", "closed", "happened"
Act = Callable[[Watched, str], object]


def kill_sampler(watch: Watched, name: str) -> None:
    watch.bed.nodes[name].run(["/bin/sh", "-c", "kill -9 $(pgrep -o -f '^[^ ]*python3 .* begin[.]')"])


def kill_sshds(watch: Watched, name: str) -> None:
    watch.bed.nodes[name].run(["/bin/sh", "-c", "kill -9 $(pgrep sshd)"])


def change_host_key(watch: Watched, name: str) -> None:
    watch.bed.replace_host_key(name)
    kill_sampler(watch, name)


def boot_again(image: Callable[[str], NodeImage]) -> Act:
    def act(watch: Watched, name: str) -> None:
        watch.bed.start(name, with_file(image(name), BOOT_ID, f"{name}-booted-again\n"))

    return act


def another_machine(name: str) -> NodeImage:
    return healthy_p5(f"another-{name}")


def set_clocks(watch: Watched, name: str) -> None:
    for offset_s in (3600, 0):
        said = len(watch.of(CLOCK, name))
        set_clock(watch.bed.nodes[name], offset_s)
        watch.until(lambda said=said: len(watch.of(CLOCK, name)) > said, "that the clock was set")  # type: ignore[misc]


def nothing(_watch: Watched, _name: str) -> None:
    return


@dataclass(frozen=True)
class Trouble:
    """What happens to a node, what mends it, and what is said of it, by rule."""

    node: str
    act: Act
    mend: Act
    said: dict[str, Sequence[str]]
    is_off: bool = False  # meanwhile, so that it logs nothing

    @property
    def is_silent(self) -> bool:
        return SILENT in self.said


SILENCE = {SILENT: (OPENED, CLOSED)}
BOOTED = {**SILENCE, REBOOT: (HAPPENED,)}
TROUBLES = (
    Trouble("killed", kill_sampler, nothing, {}),
    Trouble("sshd", kill_sshds, lambda watch, name: watch.bed.start_sshd(name), SILENCE),
    Trouble("host-key", change_host_key, lambda watch, name: watch.bed.know_host_key(name), SILENCE),
    Trouble(
        "wire", lambda watch, name: watch.bed.cut_wire(name), lambda watch, name: watch.bed.mend_wire(name), SILENCE
    ),
    Trouble("clock", set_clocks, nothing, {CLOCK: (HAPPENED, HAPPENED)}),
    Trouble("reboot", lambda watch, name: watch.bed.stop(name), boot_again(healthy_p5), BOOTED, is_off=True),
    Trouble("replaced", lambda watch, name: watch.bed.stop(name), boot_again(another_machine), BOOTED, is_off=True),
)
NAMES = [trouble.node for trouble in TROUBLES]


def xid(watch: Watched, name: str, code: int) -> None:
    text = f"NVRM: Xid (PCI:0000:64:00): {code}, pid='<unknown>', name=<unknown>, it broke"
    for _ in range(3):
        log(watch.bed.nodes[name], text, time.clock_gettime(time.CLOCK_BOOTTIME))


def xids(watch: Watched, name: str) -> list[str]:
    """The Xids that were said to begin, in their order."""
    said = [one for one in watch.of("gpu.no_xid", name) if one.kind.value == OPENED]
    return [one.key.device.rpartition(" ")[2] for one in said]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "LEAST_DEAD_S", 6.0)
    monkeypatch.setattr(line, "LONGEST_PAUSE_S", 2.0)
    monkeypatch.setattr(staying, "LOOK_S", 1.0)


@pytest.mark.usefixtures("quick")
def test_no_trouble_of_a_node_costs_an_alert_or_repeats_one_or_leaves_anything(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    threads = threading.active_count()
    with testbed({name: healthy_p5(name) for name in NAMES}) as bed:
        settable(bed.nodes["clock"])
        with watched(bed, monkeypatch, tmp_path / "kept") as watch:
            watch.until_sampled(*NAMES)
            each(watch, 79, NAMES)
            for trouble in TROUBLES:
                trouble.act(watch, trouble.node)
                if not trouble.is_off:
                    xid(watch, trouble.node, 95)
            for trouble in TROUBLES:
                if trouble.is_silent:
                    watch.until_said(SILENT, node=trouble.node)
                trouble.mend(watch, trouble.node)
            watch.until_sampled(*NAMES)
            each(watch, 48, NAMES)
            watch.until(lambda: all(len(watch.of(REBOOT, name)) for name in NAMES[-2:]), "reboots")
            watch.until(lambda: all(is_over(watch, name, "79") for name in NAMES[-2:]), "the end of what was before")
            for trouble in TROUBLES:
                name = trouble.node
                assert xids(watch, name) == (["79", "48"] if trouble.is_off else ["79", "95", "48"]), name
                said = {rule: tuple(one.kind.value for one in watch.of(rule, name)) for rule in (SILENT, REBOOT, CLOCK)}
                assert {rule: kinds for rule, kinds in said.items() if kinds} == dict(trouble.said), name
        for name in NAMES:
            watch.until(lambda name=name: not samplers(bed.nodes[name]), f"the end of {name}'s samplers")  # type: ignore[misc]
    assert threading.active_count() <= threads


def each(watch: Watched, code: int, names: Sequence[str]) -> None:
    """Each of these nodes logs that Xid, and it is said."""
    for name in names:
        xid(watch, name, code)
    for name in names:
        watch.until(lambda name=name: str(code) in xids(watch, name), f"Xid {code} of {name}")  # type: ignore[misc]


def is_over(watch: Watched, name: str, code: str) -> bool:
    return any(one.kind.value == CLOSED and one.key.device.endswith(code) for one in watch.of("gpu.no_xid", name))
