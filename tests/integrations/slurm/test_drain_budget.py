"""Prologs and epilogs keep the limit on drained nodes by what the last health check left on the node."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterproof.integrations.slurm import folder
from clusterproof.integrations.slurm.folder import boot_id, since_boot_s
from clusterproof.integrations.slurm.health_check import record_full_partition
from clusterproof.integrations.slurm.records import BUDGET_UNKNOWN, FORMER_DRAIN_BUDGET, why_no_drain
from clusterproof.integrations.slurm.records import DRAIN_BUDGET as RECORD
from tests.faults import BY_NAME
from tests.integrations.slurm import controller
from tests.integrations.slurm.calls import call_of, state_in
from tests.integrations.slurm.controller import drained_by_slurm
from tests.integrations.slurm.drained import AT_MOST_ONE, FULL, LOST, OTHER_DRAINED, explained, of, other, updates
from tests.integrations.slurm.on_node import output_of, script, state
from tests.integrations.slurm.scripts import BUDGET, drain_budget, eventually
from tests.testbed.image import ABSENT
from tests.testbed.needs import needs_nodes
from tests.testbed.node import healthy_p5, with_file

BOOT, NOW = "b00t", 100_000.0
SICK = "clusterproof: gpu.gpu_answers: GPU 3: the driver says GPU_IS_LOST"


def at(moment: float, full: str = "", boot: str = BOOT) -> str:
    """What a health check left at that moment after boot."""
    return json.dumps({"boot_id": boot, "at": moment, "full": full, "nodes": 2})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (at(NOW), ""),
        (at(NOW, FULL), f"{FULL} (by the health check of 0 s ago)"),
        (at(NOW - 120, FULL), f"{FULL} (by the health check of 120 s ago)"),
        (at(NOW - 3500), ""),
        (at(NOW - 3700), f"{BUDGET_UNKNOWN} within 60 minutes"),
        (at(NOW - 10, boot="another"), f"{BUDGET_UNKNOWN} since it was booted"),
        (at(NOW + 100), f"{BUDGET_UNKNOWN} since it was booted"),
        ('{"at": 1700000000.0, "full": "", "nodes": 2}', f"{BUDGET_UNKNOWN} since it was booted"),
        ("", BUDGET_UNKNOWN),
        ("{}", BUDGET_UNKNOWN),
        ('{"boot_id": "b00t", "at": "now", "full": "", "nodes": 2}', f"{BUDGET_UNKNOWN} since it was booted"),
        ('{"boot_id": "b00t", "at": 1e300, "full": "", "nodes": 2}', f"{BUDGET_UNKNOWN} since it was booted"),
        ('{"boot_id": "b00t", "at": NaN, "full": "", "nodes": 2}', f"{BUDGET_UNKNOWN} since it was booted"),
    ],
)
def test_a_prolog_drains_where_a_health_check_found_room_not_long_ago(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, why: str
) -> None:
    monkeypatch.setattr(folder, "boot_id", lambda: BOOT)
    monkeypatch.setattr(folder, "since_boot_s", lambda: NOW)
    kept = state_in(tmp_path / "state")
    kept.prepare()
    (Path(kept.folder) / f"{RECORD}.json").write_text(text)
    assert why_no_drain(kept) == why


@pytest.mark.parametrize("name", [RECORD, FORMER_DRAIN_BUDGET])
def test_what_the_version_before_has_left_serves_until_the_next_health_check(tmp_path: Path, name: str) -> None:
    kept = state_in(tmp_path / "state")
    kept.prepare()
    kept.write(name, {"at": time.time() - 120, "full": "", "nodes": 2})
    assert why_no_drain(kept) == ""
    kept.write(RECORD, {"at": time.time() - 60, "full": FULL, "nodes": 2})
    assert why_no_drain(kept).startswith(FULL)


@pytest.mark.parametrize(
    ("new", "former", "why"),
    [
        (at(NOW - 600), at(NOW - 60, FULL), f"{FULL} (by the health check of 60 s ago)"),
        (at(NOW - 3700), at(NOW - 60), ""),
        (at(NOW - 60), at(NOW - 600, FULL), ""),
        (at(NOW - 60, boot="another"), at(NOW - 600), ""),
        (at(NOW - 600), at(NOW - 60, FULL, boot="another"), ""),
    ],
)
def test_after_a_rollback_and_an_upgrade_the_newest_of_this_boot_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: str, former: str, why: str
) -> None:
    monkeypatch.setattr(folder, "boot_id", lambda: BOOT)
    monkeypatch.setattr(folder, "since_boot_s", lambda: NOW)
    kept = state_in(tmp_path / "state")
    kept.prepare()
    for name, text in ((RECORD, new), (FORMER_DRAIN_BUDGET, former)):
        (Path(kept.folder) / f"{name}.json").write_text(text)
    assert why_no_drain(kept) == why


@pytest.mark.parametrize("is_taken", [True, False])
def test_what_the_version_before_has_left_is_removed_only_once_the_new_record_is_there(
    tmp_path: Path, is_taken: bool
) -> None:
    kept = state_in(tmp_path / "state")
    kept.prepare()
    kept.write(FORMER_DRAIN_BUDGET, {"boot_id": boot_id(), "at": since_boot_s(), "full": "", "nodes": 2})
    if not is_taken:
        (Path(kept.folder) / f"{RECORD}.json").mkdir()
    record_full_partition(call_of("health-check", kept), FULL, 2)
    assert why_no_drain(kept).startswith(FULL) == is_taken
    assert bool(kept.read(FORMER_DRAIN_BUDGET)) != is_taken


@needs_nodes
@pytest.mark.parametrize(
    ("leave", "why"),
    [
        (lambda: ABSENT, BUDGET_UNKNOWN),
        (lambda: drain_budget(FULL, 30.0), FULL),
        (lambda: drain_budget(age_s=7200.0), f"{BUDGET_UNKNOWN} within 60 minutes"),
    ],
    ids=["nothing", "full", "old"],
)
@pytest.mark.parametrize("occasion", ["prolog", "epilog"])
def test_where_enough_are_drained_or_nobody_says_it_lets_the_job_run_and_says_why(
    occasion: str, leave: Callable[[], str], why: str
) -> None:
    image = LOST if occasion == "prolog" else BY_NAME["a GPU that somebody holds"].put(healthy_p5())
    with of(with_file(image, BUDGET, leave())) as running:
        ran = script(running, occasion, "41")
        records = list((running.root / BUDGET.lstrip("/")).parent.glob("drained/*.json"))
    assert (ran.returncode, ran.stdout, records) == (0, b"", [])
    assert f"would drain, but {why}" in output_of(ran)


@needs_nodes
def test_a_health_check_leaves_on_the_node_how_many_are_drained() -> None:
    former = str(Path(BUDGET).with_stem(FORMER_DRAIN_BUDGET))
    image = with_file(with_file(healthy_p5(), BUDGET, ABSENT), former, drain_budget(FULL))
    with of(image, toml=AT_MOST_ONE) as running:
        before = since_boot_s()
        script(running, "health-check")
        record = state(running, RECORD)
        assert not (running.root / former.lstrip("/")).exists()
        other(running, OTHER_DRAINED)
        script(running, "health-check")
        full = state(running, RECORD)["full"]
    assert (record["full"], record["nodes"]) == ("", 2)
    assert float(json.dumps(record["at"])) >= before
    assert full == FULL


@needs_nodes
def test_where_it_only_observes_a_health_check_asks_slurm_nothing() -> None:
    with of(with_file(healthy_p5(), BUDGET, ABSENT), toml="deadline_s = 8\n") as running:
        script(running, "health-check")
        assert not (running.root / BUDGET.lstrip("/")).exists()


@needs_nodes
@pytest.mark.parametrize("keeps_reason", [False, True], ids=["22.05", "24.11"])
def test_excess_drains_by_prologs_between_two_health_checks_are_taken_back(
    keeps_reason: bool,
) -> None:
    with of(LOST, keeps_reason=keeps_reason, toml=AT_MOST_ONE) as running:
        other(running, OTHER_DRAINED)
        assert script(running, "prolog", "41").returncode == 1
        drained_by_slurm(running, "Prolog error")
        assert eventually(lambda: controller.state(running) if "State=RESUME" in updates(running) else "") == "IDLE"
        assert f"Reason={SICK}" in updates(running)
        ran = script(running, "prolog", "42")
    assert ran.returncode == 0
    assert f"would drain, but {FULL}" in output_of(ran)


@needs_nodes
def test_a_prologs_drain_for_which_there_is_room_stays() -> None:
    with of(LOST, toml=AT_MOST_ONE) as running:
        assert script(running, "prolog", "41").returncode == 1
        drained_by_slurm(running, "Prolog error")
        assert explained(running).startswith(SICK)
        assert eventually(lambda: "" if state(running, "drained/prolog-41")["is_claim"] else "settled")
        assert controller.state(running) == "IDLE+DRAIN"
