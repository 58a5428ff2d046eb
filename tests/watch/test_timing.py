"""The numbers by which a watch says something: the catalogue's, or those of a site."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import TIMING, ChangeKind, InvalidTiming, RuleResult, States, Timing

RULES = frozenset({"gpu.no_throttle"})
HOLDS = {("GPU 3", "gpu.no_throttle"): RuleResult(Verdict.CONCERN, "slowed down; expected none")}


def test_the_catalogue_has_every_number() -> None:
    assert Timing(5, 3, 2, 6, 2, 3600.0, 3, 2.0) == TIMING


def test_a_sites_own_numbers_decide_when_a_state_is_said() -> None:
    site = Catalog({"watch.opens_ticks": 1, "watch.closes_ticks": 2, "watch.flaps_times": 1})
    states = States(Timing.of(site))
    said = [states.tick("gpu001", RULES, HOLDS if look == "x" else {}, 10.0 * at) for at, look in enumerate("x..x")]
    assert [[change.kind for change in changes] for changes in said] == [
        [ChangeKind.OPENED],
        [],
        [ChangeKind.CLOSED],
        [ChangeKind.FLAPPING],
    ]


@pytest.mark.parametrize(("verdict", "tick"), [(Verdict.FAIL, 1), (Verdict.CONCERN, 2)])
def test_a_fail_may_be_said_sooner_than_a_concern(verdict: Verdict, tick: int) -> None:
    states, holds = States(TIMING), {key: RuleResult(verdict, "slowed down") for key in HOLDS}
    said = [states.tick("gpu001", RULES, holds, 10.0 * at, TIMING.slowdown_opens_ticks) for at in range(3)]
    assert [bool(changes) for changes in said] == [at == tick for at in range(3)]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"opens_ticks": 6}, "watch.opens_ticks is 6; expected at most watch.window_ticks, which is 5"),
        (
            {"slowdown_opens_ticks": 6},
            "watch.slowdown_opens_ticks is 6; expected at most watch.window_ticks, which is 5",
        ),
        ({"closes_ticks": 0}, "watch.closes_ticks is 0; expected a whole number from 1 to 1,000"),
        ({"silent_ticks": 2.5}, "watch.silent_ticks is 2.5; expected a whole number"),
        ({"window_ticks": 1e9}, "watch.window_ticks is 1e+09; expected a whole number"),
    ],
)
def test_numbers_by_which_nothing_would_be_said_are_refused(numbers: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidTiming) as wrong:
        Timing.of(Catalog({f"watch.{name}": value for name, value in numbers.items()}))
    assert said in str(wrong.value)


def test_a_policy_with_such_numbers_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "site.toml"
    policy.write_text("[thresholds.watch]\nopens_ticks = 9\n", encoding="utf-8")
    assert main(["watch", "--cluster", "local", "--for", "1s", "--policy", str(policy)]) == 4
    assert capsys.readouterr().err.endswith(
        "site.toml: watch.opens_ticks is 9; expected at most watch.window_ticks, which is 5\n"
    )
