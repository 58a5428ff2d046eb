"""Links, mounts and processes of a node with a real sshd: their faults are reported between two visits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from clusterproof.plugins.watch import ChangeKind
from tests.testbed.cluster import testbed
from tests.testbed.needs import needs_cluster, needs_frozen
from tests.testbed.node import healthy_p5, with_frozen
from tests.watch.live_faults import PORT, SCRATCH, OfFile, OfNode, broken, done_on
from tests.watch.watched_bed import Watched, watched

pytestmark = needs_cluster

NODE = "gpu001"
LINKS = (
    OfFile("network.efa_port_active", "rdmap79s0: port 1 is 1: DOWN", f"{PORT}/state", "1: DOWN\n"),
    OfFile("network.interfaces_up", "switched on without a link: ens32", "/sys/class/net/ens32/carrier", "0\n"),
)
MOUNTS = (
    OfNode(
        "storage.mounts_writable",
        f"{SCRATCH}: tmpfs read-only",
        f"mount -o remount,ro {SCRATCH}",
        f"mount -o remount,rw {SCRATCH}",
    ),
    OfNode(
        "storage.mounts_expected",
        "not mounted: /fsx",
        "cp /run/fake-mountinfo.txt /run/before; sed -i '/ .fsx /d' /run/fake-mountinfo.txt",
        "cp /run/before /run/fake-mountinfo.txt",
    ),
    OfNode(
        "host.d_state",
        "in state D: sh",
        "(echo >/stuck/file) </dev/null >/dev/null 2>&1 & until grep -q '^State:.D' /proc/$!/status; do :; done; "
        "sed 's/^se.exec_start .*/se.exec_start : 1000.0/' /proc/$!/sched >/run/sched; "
        "mount --bind /run/sched /proc/$!/sched",
    ),
)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    images = {NODE: with_frozen(healthy_p5(NODE), "/stuck")}
    with testbed(images) as bed, watched(bed, monkeypatch, every_s=0.5) as made:
        made.until_sampled(NODE, more=5)
        yield made


@needs_frozen
def test_what_happens_to_links_mounts_and_processes_is_said_between_two_visits_and_its_end(watch: Watched) -> None:
    node = watch.bed.nodes[NODE]
    with ExitStack() as stack:
        stack.enter_context(broken(node.root, LINKS))
        stack.enter_context(done_on(node, MOUNTS))
        for fault in (*LINKS, *MOUNTS):
            assert fault.words in watch.until_said(fault.rule).message
    for fault in (*LINKS, *MOUNTS[:2]):  # no signal ends a hung process
        watch.until_said(fault.rule, ChangeKind.CLOSED)
