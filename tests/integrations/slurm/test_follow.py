"""The process that a draining script leaves behind: what it notices on the node, and how many there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import control, health_check
from clusterproof.integrations.slurm.control import NodeState
from clusterproof.integrations.slurm.drains import Drain, release, remember, remembered_drains
from clusterproof.integrations.slurm.folder import since_boot_s
from tests.faults import BY_NAME
from tests.integrations.slurm import controller
from tests.integrations.slurm.calls import call_of, state_in
from tests.integrations.slurm.controller import drained_by_slurm
from tests.integrations.slurm.drained import explained, log_an_xid, of
from tests.integrations.slurm.on_node import output_of, script
from tests.integrations.slurm.scripts import SCRIPTS, STATE, eventually
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, healthy_p5

pytestmark = needs_nodes

HEALTHY = healthy_p5()
LOST = BY_NAME["a GPU that is lost"].put(HEALTHY)
OURS = "clusterproof: gpu."
versions = pytest.mark.parametrize("keeps_reason", [False, True], ids=["22.05", "24.11"])


def test_what_two_jobs_met_at_once_is_not_evaluated_again_once_an_administrator_has_resumed_the_node() -> None:
    with of(HEALTHY) as running:
        assert script(running, "prolog", "40").returncode == 0
        log_an_xid(running)
        (running.root / STATE / "verdict.json").unlink()
        controller.has_jobs(running, "41", "42")
        loop = f"for job in 41 42; do SLURM_JOB_ID=$job {SCRIPTS}/clusterproof-prolog & done; wait"
        running.run(["/bin/sh", "-c", loop])
        drained_by_slurm(running, "Prolog error")
        assert explained(running).startswith(f"{OURS}no_xid: ")
        running.run(["pkill", "-f", "explain$"])  # it would notice who resumes the node
        records = {file.stem.partition("-")[2]: json.loads(file.read_text()) for file in kept(running)}
        controller.has_jobs(running, *(job for job, record in records.items() if not record["is_reported"]))
        running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=RESUME"])
        drained_by_slurm(running, "Prolog error")
        output = output_of(script(running, "health-check"))
        assert len({record["reason"] for record in records.values()}) == 1
        assert controller.state(running) == "IDLE", output


@versions
def test_an_administrator_who_takes_a_node_back_at_once_is_noticed(keeps_reason: bool) -> None:
    with of(HEALTHY, keeps_reason=keeps_reason) as running:
        assert script(running, "prolog", "40").returncode == 0
        log_an_xid(running)
        (running.root / STATE / "verdict.json").unlink()
        assert script(running, "prolog", "41").returncode == 1
        drained_by_slurm(running, "Prolog error")
        assert explained(running).startswith(f"{OURS}no_xid: ")
        running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=RESUME"])
        eventually(lambda: "" if kept(running) else "forgotten")
        again = script(running, "prolog", "42")
        assert again.returncode == 0, output_of(again)


def test_many_calls_that_drain_leave_one_follower_of_the_node_and_one_waiting() -> None:
    jobs = [str(number) for number in range(41, 47)]
    with of(LOST) as running:
        controller.has_jobs(running, *jobs)
        assert [script(running, "prolog", job).returncode for job in jobs] == [1] * len(jobs)
        eventually(lambda: "two" if len(explaining(running)) <= 2 else "")
        drained_by_slurm(running, "Prolog error")
        assert explained(running).startswith(f"{OURS}gpu_answers: GPU 3")


def test_a_drain_that_is_forgotten_while_it_is_looked_back_at_stays_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = state_in(tmp_path / "state")
    state.prepare()
    claim = Drain("prolog", "41", (), "clusterproof: gpu.gpu_answers: lost", None, since_boot_s(), True, True)
    remember(state, claim)

    def taken_back(*_: object) -> str:
        release(state, (claim,))
        return ""

    monkeypatch.setattr(control, "node_state", lambda _: NodeState(frozenset({"IDLE"}), "", ("gpu",)))
    monkeypatch.setattr(health_check, "full_after_claim", taken_back)
    assert health_check.confirm_claim(call_of("explain", state), claim)
    assert remembered_drains(state) == ()


def kept(running: Node) -> list[Path]:
    """The records of drains."""
    return list((running.root / STATE / "drained").iterdir())


def explaining(running: Node) -> list[str]:
    """The processes on the node that wait for Slurm to drain it."""
    listed = running.run(["ps", "-eo", "args"]).stdout.decode()
    return [line for line in listed.splitlines() if line.endswith(" explain")]
