"""A logged fault drains exactly once: not twice, and later if it could not drain at the time."""

from __future__ import annotations

import pytest

from tests.integrations.slurm import controller
from tests.integrations.slurm.controller import drained_by_slurm, has_jobs
from tests.integrations.slurm.drained import AT_MOST_ONE, FULL, HEALTHY, OTHER_DRAINED, log_an_xid, of, other, updates
from tests.integrations.slurm.on_node import output_of, script
from tests.integrations.slurm.scripts import BUDGET, DRAIN, drain_budget, eventually
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, with_file

pytestmark = needs_nodes
XID = "fail: gpu.no_xid: Xid 79"
EACH = "reuse_s = 0\n"  # every job is checked afresh


def becomes(running: Node, state: str) -> None:
    """Have Slurm show the node in this state from now on."""
    at = running.root / controller.FOLDER
    at.mkdir(parents=True, exist_ok=True)
    (at / "state").write_text(f"{state}\n")


@pytest.mark.parametrize("first", ["prolog", "epilog"])
@pytest.mark.parametrize("then", ["prolog", "health-check"])
def test_what_did_not_drain_as_enough_were_drained_does_once_there_is_room(first: str, then: str) -> None:
    with of(with_file(HEALTHY, BUDGET, drain_budget(FULL)), toml=DRAIN + EACH) as running:
        script(running, "prolog", "41")
        log_an_xid(running)
        assert f"would drain, but {FULL}" in output_of(script(running, first, "41"))
        (running.root / BUDGET.lstrip("/")).write_text(drain_budget())
        ran = script(running, then, "42")
        assert XID in output_of(ran)
        assert ran.returncode or controller.state(running) == "IDLE+DRAIN"


def test_what_was_drained_for_and_was_one_too_many_is_found_again() -> None:
    with of(HEALTHY, toml=DRAIN + EACH + AT_MOST_ONE.removeprefix(DRAIN)) as running:
        script(running, "prolog", "41")
        other(running, OTHER_DRAINED)
        log_an_xid(running)
        assert script(running, "epilog", "41").returncode == 1
        drained_by_slurm(running, "Epilog error")
        eventually(lambda: "State=RESUME" if "State=RESUME" in updates(running) else "")
        assert XID in output_of(script(running, "prolog", "42"))


@pytest.mark.parametrize("state", ["IDLE+MAINT+RESERVED", "DOWN+NOT_RESPONDING"])
def test_what_is_found_on_a_node_that_comes_back_by_itself_drains_it_then(state: str) -> None:
    with of(HEALTHY) as running:
        script(running, "health-check")
        log_an_xid(running)
        becomes(running, state)
        assert f"and is {'+'.join(sorted(state.split('+')))} already" in output_of(script(running, "health-check"))
        assert controller.state(running) == state
        becomes(running, "IDLE")
        script(running, "health-check")
        assert controller.state(running) == "IDLE+DRAIN"


def test_what_is_found_on_a_node_that_somebody_has_drained_is_theirs_to_look_at() -> None:
    with of(HEALTHY) as running:
        script(running, "health-check")
        log_an_xid(running)
        becomes(running, "IDLE+DRAIN")
        script(running, "health-check")
        becomes(running, "IDLE")
        assert XID not in output_of(script(running, "health-check"))


def test_an_epilog_does_not_drain_for_what_somebody_took_the_node_back_from_while_the_job_ran() -> None:
    with of(HEALTHY) as running:
        script(running, "prolog", "41")
        has_jobs(running, "41")
        log_an_xid(running)
        script(running, "health-check")
        assert controller.state(running) == "IDLE+DRAIN"
        running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=RESUME"])
        script(running, "health-check")
        assert script(running, "epilog", "41").returncode == 0
        log_an_xid(running)
        assert script(running, "epilog", "41").returncode == 1


def test_where_it_only_observes_each_is_logged_once() -> None:
    with of(HEALTHY, toml='mode = "observe"\ndeadline_s = 8\nreuse_s = 0\n') as running:
        script(running, "prolog", "41")
        log_an_xid(running)
        assert XID in output_of(script(running, "prolog", "42"))
        assert XID not in output_of(script(running, "prolog", "43"))
