"""The limit on drained nodes when the health checks of a whole cluster find a fault at the same moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterproof.integrations.slurm import control, our_drains
from clusterproof.integrations.slurm.our_drains import Claim, ahead
from clusterproof.integrations.slurm.settings import HealthCheck
from tests.integrations.slurm.at_once import drain_at_once

NODES = 200
FAST = 20  # factor by which the clock is faster


class Controller:
    """A simulated slurmctld as `control` sees it: one change at a time, and a clock in seconds."""

    def __init__(self, names: Sequence[str], *, keeps_reason: bool) -> None:
        self.keeps_reason = keeps_reason
        self.names = names
        self.drained: set[str] = set()
        self.reasons: dict[str, tuple[str, int]] = {}
        self.most = 0
        self._one = threading.Lock()
        self._began = time.monotonic()

    def __call__(self, *command: str) -> str:
        """Answer one command."""
        with self._one:
            if command[0] == "sinfo":
                return "".join(map(self._row, self.names))
            if command[1] == "show":
                state = "IDLE+DRAIN" if command[3] in self.drained else "IDLE"
                reason, at = self.reasons.get(command[3], ("", 0))
                line = f"   Reason={reason} [root@{at}]\n" if reason else ""
                return f"NodeName={command[3]}\n   State={state}\n   Partitions=gpu \n{line}"
            self._update(command[2].partition("=")[2], *command[3:])
            self.most = max(self.most, len(self.drained))
            return ""

    def _update(self, name: str, state: str, reason: str = "") -> None:
        if state == "State=DRAIN":
            self.drained.add(name)
            self.reasons[name] = reason.removeprefix("Reason="), self._now()
        else:
            self.drained.remove(name)
            if not self.keeps_reason:
                del self.reasons[name]

    def _row(self, name: str) -> str:
        reason, at = self.reasons.get(name, ("none", 0))
        return f"{name}|{'drained' if name in self.drained else 'idle'}|{at}|{reason}\n"

    def _now(self) -> int:
        return int((time.monotonic() - self._began) * FAST)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten all waits by the factor of the controller's clock."""
    monkeypatch.setattr(our_drains, "SECOND_S", our_drains.SECOND_S / FAST)
    monkeypatch.setattr(our_drains, "MAX_RANDOM_WAIT_S", our_drains.MAX_RANDOM_WAIT_S / FAST)
    monkeypatch.setattr(our_drains, "RANDOM_WAIT_S", our_drains.RANDOM_WAIT_S / FAST)


@pytest.mark.long
@pytest.mark.parametrize("keeps_reason", [False, True], ids=["22.05", "24.11"])
@pytest.mark.parametrize("is_drawn", [True, False], ids=["drawn apart", "in one moment"])
def test_no_more_than_the_limit_of_two_hundred_at_once_stay_drained(
    hasty: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keeps_reason: bool, is_drawn: bool
) -> None:
    controller = Controller([f"gpu{number:03}" for number in range(NODES)], keeps_reason=keeps_reason)
    monkeypatch.setattr(control, "output_of", controller)
    if not is_drawn:
        monkeypatch.setattr(our_drains, "MAX_RANDOM_WAIT_S", 0.0)
    settled = drain_at_once(controller.names, tmp_path, HealthCheck(max_drained_percent=10, max_drained_nodes=10))
    assert len(controller.drained) == 10
    assert settled.count(True) == 10


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=20, unique_by=lambda entry: entry[1]))
def test_each_of_the_claims_has_a_place_of_its_own(made: list[tuple[int, int]]) -> None:
    claims = [Claim(at, f"gpu{number:03}") for at, number in made]
    assert sorted(ahead(claims, claim.node) for claim in claims) == list(range(len(claims)))


def test_a_node_that_was_drained_and_resumed_takes_nobodys_place(
    hasty: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    controller = Controller(["gpu001", "gpu002"], keeps_reason=True)
    monkeypatch.setattr(control, "output_of", controller)
    control.drain("gpu001", "clusterproof: gpu.no_xid: Xid 79")
    control.resume("gpu001")
    assert drain_at_once(controller.names, tmp_path, HealthCheck(max_drained_nodes=1)).count(True) == 1
    assert len(controller.drained) == 1
