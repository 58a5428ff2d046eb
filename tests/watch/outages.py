"""Outages of nodes watched over real sshds: what causes and ends them, and the expected reports."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from clusterproof.plugins.transport.ssh import session
from clusterproof.plugins.watch import sampler_session, watch
from clusterproof.plugins.watch.own_health import CLOCK, REBOOT, SILENT
from tests.testbed.clock import set_clock
from tests.testbed.faults import with_file
from tests.testbed.image import NodeImage
from tests.testbed.node import healthy_p5
from tests.watch.watched_bed import Watched, log

BOOT_ID = "/proc/sys/kernel/random/boot_id"
QUICK = {
    "sampler_session.MIN_DEAD_S": 6.0,
    "sampler_session.LONGEST_PAUSE_S": 2.0,
    "session.CHECK_S": 1.0,
    "watch.AGAIN_S": 10.0,
}
OPENED, CLOSED, HAPPENED = "opened", "closed", "happened"
Act = Callable[[Watched, str], object]


def kill_sampler(watch: Watched, name: str) -> None:
    watch.bed.nodes[name].run(["/bin/sh", "-c", "kill -9 $(pgrep -o -f '^[^ ]*python3[^ ]* .* begin[.]')"])


def kill_sshds(watch: Watched, name: str) -> None:
    watch.bed.nodes[name].run(["/bin/sh", "-c", "kill -9 $(pgrep sshd)"])


def change_host_key(watch: Watched, name: str) -> None:
    watch.bed.replace_host_key(name)
    kill_sampler(watch, name)


def boot_again(image: Callable[[str], NodeImage]) -> Act:
    def act(watch: Watched, name: str) -> None:
        watch.bed.start(name, with_file(image(name), BOOT_ID, f"{uuid.uuid4()}\n"))

    return act


def another_machine(name: str) -> NodeImage:
    return healthy_p5(f"another-{name}")


def set_clocks(watch: Watched, name: str) -> None:
    for offset_s in (3600, 0):
        before = len(watch.of(CLOCK, name))
        set_clock(watch.bed.nodes[name], offset_s)
        watch.until(lambda before=before: len(watch.of(CLOCK, name)) > before, "that the clock was set")  # type: ignore[misc]


def nothing(_watch: Watched, _name: str) -> None:
    return


@dataclass(frozen=True)
class Outage:
    """What happens to a node, what ends it, and what is reported, by rule."""

    node: str
    act: Act
    mend: Act
    said: Mapping[str, Sequence[str]]
    is_off: bool = False  # meanwhile, so that it logs nothing

    @property
    def is_silent(self) -> bool:
        return SILENT in self.said


SILENCE = {SILENT: (OPENED, CLOSED)}
BOOTED = {**SILENCE, REBOOT: (HAPPENED,)}
OUTAGES = (
    Outage("killed", kill_sampler, nothing, {}),
    Outage("sshd", kill_sshds, lambda watch, name: watch.bed.start_sshd(name), SILENCE),
    Outage("host-key", change_host_key, lambda watch, name: watch.bed.know_host_key(name), SILENCE),
    Outage(
        "wire", lambda watch, name: watch.bed.cut_wire(name), lambda watch, name: watch.bed.mend_wire(name), SILENCE
    ),
    Outage("clock", set_clocks, nothing, {CLOCK: (HAPPENED, HAPPENED)}),
    Outage("reboot", lambda watch, name: watch.bed.stop(name), boot_again(healthy_p5), BOOTED, is_off=True),
    Outage("replaced", lambda watch, name: watch.bed.stop(name), boot_again(another_machine), BOOTED, is_off=True),
)


def xid(watch: Watched, name: str, code: int, bus: int = 0x64) -> None:
    """A node's kernel logs an Xid three times."""
    text = f"NVRM: Xid (PCI:0000:{bus:02x}:00): {code}, pid='<unknown>', name=<unknown>, it broke"
    for _ in range(3):
        log(watch.bed.nodes[name], text, time.clock_gettime(time.CLOCK_BOOTTIME))


def xids(watch: Watched, name: str) -> list[str]:
    """The Xids that were reported, in order."""
    opened = [change for change in watch.of("gpu.no_xid", name) if change.kind.value == OPENED]
    return [change.key.device.rpartition(" ")[2] for change in opened]


def make_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a silent connection, and try again, within seconds."""
    for name, value in QUICK.items():
        module, _, constant = name.partition(".")
        monkeypatch.setattr(
            {"sampler_session": sampler_session, "session": session, "watch": watch}[module], constant, value
        )
