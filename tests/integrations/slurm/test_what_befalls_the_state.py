"""A sick node is drained and later resumed, whatever happens to the state folder or the clock before that."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusterproof.integrations.slurm.folder import KEPT_S
from tests.integrations.slurm import controller
from tests.integrations.slurm.controller import drained_by_slurm
from tests.integrations.slurm.drained import HEALTHY, LOST, of
from tests.integrations.slurm.on_node import output_of, script
from tests.integrations.slurm.scripts import BUDGET, STATE, put
from tests.testbed.clock import set_clock, settable
from tests.testbed.image import ABSENT, NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, with_file, with_full_root, with_tmpfs

pytestmark = needs_nodes
FOLDER = "/var/lib/clusterproof"


def shell(commands: str) -> Callable[[Node], object]:
    return lambda running: running.run(["/bin/sh", "-c", commands])


def clock(offset_s: float) -> Callable[[Node], object]:
    return lambda running: set_clock(running, int(offset_s))


@pytest.mark.parametrize(
    ("put_on", "befalls"),
    [
        (lambda image: with_tmpfs(image, FOLDER, "64k"), shell(f"cat /dev/zero >{FOLDER}/full")),
        (
            lambda image: with_full_root(with_tmpfs(image, f"/{controller.FOLDER}", "1m"), 60),
            shell("cat /dev/zero >/full"),
        ),
        (lambda image: image, shell(f"chown -R 65534 /{STATE}")),
        (lambda image: image, shell(f"mount -t tmpfs -o ro testbed {FOLDER}")),
        (lambda image: image, shell(f"rm -r {FOLDER}")),
        (lambda image: image, clock(-120)),
        (lambda image: image, clock(2 * KEPT_S)),
    ],
    ids=[
        "its disk is full",
        "all of / is full, and /run is on it",
        "it is another user's",
        "its mount is read-only",
        "it is removed",
        "the clock is set back",
        "the clock is set forward",
    ],
)
def test_a_sick_node_is_drained_and_once_it_is_well_resumed(
    put_on: Callable[[NodeImage], NodeImage], befalls: Callable[[Node], object]
) -> None:
    with of(put_on(with_file(HEALTHY, BUDGET, ABSENT))) as running:
        settable(running)
        script(running, "health-check")
        befalls(running)
        put(running, LOST)
        ran = script(running, "prolog", "41")
        assert ran.returncode == 1, output_of(ran)
        drained_by_slurm(running, "Prolog error")
        script(running, "health-check")
        assert controller.reason(running).startswith("clusterproof: ")
        running.run(["rm", "-f", "/full", f"{FOLDER}/full"])
        put(running, HEALTHY)
        output = output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE", output
