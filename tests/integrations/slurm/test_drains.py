"""Whoever drained a node resumes it: a node's record of its own drains, whatever Slurm does with their reasons."""

from __future__ import annotations

import pytest

from clusterproof.integrations.slurm.state import RUNTIME_FOLDER
from tests.faults import BY_NAME
from tests.integrations.slurm import controller
from tests.integrations.slurm.controller import drained_by_slurm
from tests.integrations.slurm.drained import HEALTHY, LOST, explained, log_an_xid, of
from tests.integrations.slurm.on_node import output_of, script
from tests.integrations.slurm.scripts import BUDGET, DRAIN, STATE, eventually, put
from tests.testbed.image import ABSENT, NodeImage
from tests.testbed.needs import needs_nodes
from tests.testbed.node import Node, with_file, with_tmpfs

pytestmark = needs_nodes
HELD = BY_NAME["a GPU that somebody holds"].put(HEALTHY)
OURS = "clusterproof: gpu."
versions = pytest.mark.parametrize("keeps_reason", [False, True], ids=["22.05", "24.11"])


def is_taken_back_with_job_41(running: Node) -> None:
    """An Xid hits two jobs; the first one's epilog drains the node, and an administrator resumes it."""
    assert [script(running, "prolog", job).returncode for job in ("40", "41")] == [0, 0]
    log_an_xid(running)
    assert script(running, "epilog", "40").returncode == 1
    drained_by_slurm(running, "Epilog error")
    assert explained(running).startswith(f"{OURS}no_xid: ")
    running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=RESUME"])


@versions
def test_a_node_that_an_epilog_and_a_prolog_drained_is_resumed_once_it_is_healthy(keeps_reason: bool) -> None:
    with of(LOST, keeps_reason=keeps_reason) as running:
        assert script(running, "prolog", "41").returncode == 1
        put(running, HELD)
        assert script(running, "epilog", "40").returncode == 1
        drained_by_slurm(running, "Prolog error")
        explained(running)
        script(running, "health-check")
        assert controller.state(running) == "IDLE+DRAIN"
        put(running, HEALTHY)
        output = output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE", output


def test_a_node_that_slurm_drains_once_more_for_a_prolog_of_before_it_was_resumed_is_resumed_again() -> None:
    with of(LOST) as running:
        controller.has_jobs(running, "41", "42")  # until Slurm knows how their prologs ended
        assert [script(running, "prolog", job).returncode for job in ("41", "42")] == [1, 1]
        controller.has_jobs(running, "42")  # Slurm has not drained the node for it yet
        drained_by_slurm(running, "Prolog error")
        explained(running)
        put(running, HEALTHY)
        script(running, "health-check")
        assert controller.state(running) == "IDLE"
        drained_by_slurm(running, "Prolog error")
        output = output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE", output


def test_what_an_epilog_drained_for_is_evaluated_as_after_a_job_before_the_node_is_resumed() -> None:
    with of(HELD) as running:
        assert script(running, "epilog", "40").returncode == 1
        drained_by_slurm(running, "Epilog error")
        assert explained(running).startswith("clusterproof: gpu.no_leftover_processes: GPU 2: held by ")
        assert "stays drained: 1 fail, 0 incomplete" in output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE+DRAIN"
        put(running, HEALTHY)
        script(running, "health-check")
        assert controller.state(running) == "IDLE"


def test_words_that_stand_from_the_last_drain_are_replaced_where_slurm_lets_them_be() -> None:
    with of(LOST, keeps_reason=True) as running:
        script(running, "prolog", "41")
        drained_by_slurm(running, "Prolog error")
        explained(running)
        put(running, HEALTHY)
        script(running, "health-check")
        assert controller.state(running) == "IDLE"
        assert controller.reason(running).startswith(f"{OURS}gpu_answers: ")
        put(running, HELD)
        controller.has_jobs(running, "40")  # until Slurm drains for it
        assert script(running, "epilog", "40").returncode == 1
        drained_by_slurm(running, "Epilog error")
        assert eventually(lambda: text if "leftover" in (text := controller.reason(running)) else "")


def test_words_that_an_administrator_has_given_are_no_drain_of_ours() -> None:
    with of(LOST) as running:
        script(running, "prolog", "41")
        drained_by_slurm(running, "Prolog error")
        by_hand = explained(running).replace("GPU 3", "RMA 12345, GPU 3")
        running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=DRAIN", f"Reason={by_hand}"])
        put(running, HEALTHY)
        script(running, "health-check")
        assert controller.state(running) == "IDLE+DRAIN"


def test_what_an_administrator_has_taken_back_is_not_evaluated_again_when_the_node_is_drained_anew() -> None:
    with of(BY_NAME["an Xid of the hardware"].put(HEALTHY)) as running:
        script(running, "health-check")
        assert controller.reason(running).startswith(f"{OURS}no_xid: ")
        running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=RESUME"])
        put(running, HELD)
        assert script(running, "epilog", "40").returncode == 1
        drained_by_slurm(running, "Epilog error")
        assert "leftover" in explained(running)
        put(running, HEALTHY)
        output = output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE", output


@pytest.mark.parametrize("again", ["health-check", "prolog"])
def test_what_several_jobs_met_is_not_evaluated_again_once_an_administrator_has_resumed_the_node(again: str) -> None:
    with of(HEALTHY) as running:
        assert [script(running, "prolog", job).returncode for job in ("40", "41")] == [0, 0]
        log_an_xid(running)
        assert [script(running, "epilog", job).returncode for job in ("40", "41")] == [1, 1]
        drained_by_slurm(running, "Epilog error")
        assert explained(running).startswith(f"{OURS}no_xid: ")
        running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=RESUME"])
        put(running, LOST)
        if script(running, again, "42").returncode:
            drained_by_slurm(running, "Prolog error")
            script(running, "health-check")
        assert controller.reason(running).startswith(f"{OURS}gpu_answers: ")
        put(running, HEALTHY)
        output = output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE", output


def test_no_prolog_finds_again_what_the_health_check_has_resumed_the_node_after() -> None:
    with of(HEALTHY) as running:
        assert script(running, "prolog", "40").returncode == 0
        log_an_xid(running)
        assert script(running, "epilog", "40").returncode == 1
        drained_by_slurm(running, "Epilog error")
        assert explained(running).startswith(f"{OURS}no_xid: ")
        (running.root / STATE / "cursor.json").unlink()  # so that prologs find it too
        assert script(running, "prolog", "41").returncode == 1
        running.run(["scontrol", "update", f"NodeName={controller.NAME}", "State=RESUME"])
        drained_by_slurm(running, "Prolog error")
        script(running, "health-check")
        assert controller.state(running) == "IDLE"
        again = script(running, "prolog", "42")
        assert again.returncode == 0, output_of(again)


@versions
def test_what_an_administrator_has_taken_back_before_the_reason_was_set_is_not_evaluated_again(
    keeps_reason: bool,
) -> None:
    with of(HEALTHY, keeps_reason=keeps_reason) as running:
        assert script(running, "prolog", "40").returncode == 0
        log_an_xid(running)
        controller.has_jobs(running, "40")
        assert script(running, "epilog", "40").returncode == 1
        controller.has_jobs(running)  # slurmctld drained the node, and it was resumed at once
        put(running, LOST)
        script(running, "health-check")
        assert controller.reason(running).startswith(f"{OURS}gpu_answers: ")
        put(running, HEALTHY)
        output = output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE", output


@pytest.mark.parametrize(
    ("left", "is_logged_anew", "state"),
    [(HEALTHY, False, "IDLE"), (HELD, False, "IDLE"), (HELD, True, "IDLE+DRAIN")],
    ids=["the same", "the same and more", "more, and the same once more"],
)
def test_what_a_job_still_meets_after_an_administrator_has_resumed_the_node_is_not_evaluated_again(
    left: NodeImage, is_logged_anew: bool, state: str
) -> None:
    with of(HEALTHY) as running:
        is_taken_back_with_job_41(running)
        put(running, left)
        if is_logged_anew:
            log_an_xid(running)
        assert script(running, "epilog", "41").returncode == 1
        put(running, HEALTHY)
        drained_by_slurm(running, "Epilog error")
        eventually(lambda: text if "job 41" in (text := controller.reason(running)) else "")
        output = output_of(script(running, "health-check"))
        assert controller.state(running) == state, output


def test_what_a_job_met_since_an_administrator_has_taken_the_node_back_is_looked_at_by_nobody_yet() -> None:
    with of(HEALTHY) as running:
        is_taken_back_with_job_41(running)
        log_an_xid(running)
        controller.has_jobs(running, "41")
        assert script(running, "epilog", "41").returncode == 1
        script(running, "health-check")  # before Slurm drains the node for it
        drained_by_slurm(running, "Epilog error")
        controller.has_jobs(running)
        output = output_of(script(running, "health-check")) + output_of(script(running, "health-check"))
        assert controller.state(running) == "IDLE+DRAIN", output


def test_nothing_is_attributed_to_a_job_that_the_prolog_did_not_let_in() -> None:
    with of(HELD) as running:
        assert script(running, "prolog", "41").returncode == 1
        ran = script(running, "epilog", "41")
    assert (ran.returncode, ran.stdout) == (0, b"")


def test_the_reason_travels_though_the_state_is_gone_meanwhile() -> None:
    with of(LOST) as running:
        assert script(running, "prolog", "41").returncode == 1
        running.run(["rm", "-r", f"/{STATE}"])
        drained_by_slurm(running, "Prolog error")
        assert explained(running).startswith(f"{OURS}gpu_answers: GPU 3")


@pytest.mark.parametrize("occasion", ["prolog", "epilog", "health-check"])
def test_without_any_memory_it_only_observes_and_says_so(occasion: str) -> None:
    image = with_tmpfs(LOST if occasion != "epilog" else HELD, "/run/clusterproof", "8k")  # everybody's
    with of(with_tmpfs(image, "/var/lib/clusterproof", "8k"), is_first_run=True) as running:
        running.run(["/bin/sh", "-c", "mkdir /var/lib/clusterproof/slurm; cat /dev/zero >/var/lib/clusterproof/full"])
        ran = script(running, occasion, "40")
        assert ran.returncode == 0
        assert controller.state(running) == "IDLE"
        assert "would drain, but cannot remember it (/var/lib/clusterproof/slurm: " in output_of(ran)


def test_a_script_that_waited_for_anothers_run_does_not_drain_at_the_deadline() -> None:
    toml = DRAIN + 'at_deadline = "drain"\n'
    with of(with_file(HEALTHY, BUDGET, ABSENT), toml=toml, is_first_run=True) as running:
        held = f"umask 077; mkdir {RUNTIME_FOLDER}; exec flock {RUNTIME_FOLDER}/lock sleep 60"
        holder = running.start(["/bin/sh", "-c", held])
        tried = (
            f"[ -e {RUNTIME_FOLDER}/lock ] && exec flock --nonblock --conflict-exit-code 100 {RUNTIME_FOLDER}/lock true"
        )
        eventually(lambda: "held" if running.run(["/bin/sh", "-c", tried]).returncode == 100 else "")
        ran = script(running, "prolog", "41")
        holder.terminate()
    assert ran.returncode == 0
    assert "no verdict: others were checking for 8 s" in output_of(ran)
