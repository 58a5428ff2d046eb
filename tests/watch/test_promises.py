"""The table in docs/watch.md is kept, row by row, with the numbers of the catalogue or of a site."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

import pytest

from clusterproof.plugins.catalog import Catalog
from clusterproof.plugins.command_line.main import main
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import (
    ChangeKind,
    RuleResult,
    command,
    job,
    own_health,
    recording,
    watch,
)
from clusterproof.plugins.watch.states import States
from clusterproof.plugins.watch.timing import TIMING, InvalidTiming, Timing
from tests.builders.wheel import ROOT
from tests.watch.days import EVERY_S, Day
from tests.watch.promises import FAULTS, WITHIN, Row, rows

EVERY = [(row, check) for row in rows() for check in row.checks]


@pytest.mark.long
@pytest.mark.parametrize(("row", "check"), EVERY, ids=[check for _, check in EVERY])
def test_what_the_table_promises_is_named_in_time(row: Row, check: str) -> None:
    day = Day()
    day.ticks(3)
    before, most = day.now, WITHIN[row.named]
    assert day.of(check) == []
    FAULTS[check](day)
    while not day.of(check) and day.now - before < most * EVERY_S:
        FAULTS[check](day)
    assert day.of(check)[:1] in (["opened"], ["happened"]), row.what
    assert day.now - before <= most * EVERY_S


@pytest.mark.parametrize(
    ("reasons", "said"),
    [(0x20, ["opened", "closed"]), (0x200, ["opened", "closed"]), (0x4, []), (0x1, []), (0x4000, ["opened", "closed"])],
)
def test_a_reason_of_slow_clocks_that_is_only_a_concern_is_named_at_the_third_tick(
    reasons: int, said: list[str]
) -> None:
    day = Day()
    day.ticks(3)
    day.tick({3: {"clocks_event_reasons": reasons}})
    day.ticks(2)
    assert day.of("gpu.no_throttle") == said[:1]
    day.tick({3: {"clocks_event_reasons": 0x4}})
    day.ticks(6)
    assert day.of("gpu.no_throttle") == said


def test_slow_clocks_are_over_where_the_sampler_that_begins_anew_reports_none() -> None:
    day = Day()
    day.tick({3: {"clocks_event_reasons": 0x20}})
    day.ticks(2)
    day.hello()
    day.ticks(7)
    assert day.of("gpu.no_throttle") == ["opened", "closed"]


def test_the_table_has_every_fault_once() -> None:
    assert sorted(check for _, check in EVERY) == sorted(FAULTS)


@pytest.mark.parametrize(
    ("said", "by"),
    [
        ("the clock was set by", own_health),
        ("the clock of this host was set by", own_health),
        ("open from before, not reported again: ", command),
        (" overwritten unread", own_health),
        ("nothing is recorded under ", recording),
        ("; watching goes on", recording),
        ("not checked in full: ", own_health),
        ("; tried again while samples come, and watching goes on", own_health),
        ("checked in full again: ", own_health),
        (": its nodes send nothing until it goes on", job),
        (" goes on", job),
        ("whether the job runs is not known", job),
        ("it has booted", watch),
    ],
)
def test_what_the_page_says_of_clocks_disks_and_hosts_is_in_the_words_of_the_watch(said: str, by: ModuleType) -> None:
    text = (ROOT / "docs/watch.md").read_text(encoding="utf-8")
    table = text[text.index("| what happens | the message |") :].partition("\n\n")[0]
    assert said in table
    assert said in inspect.getsource(by)


RULES = frozenset({"gpu.no_throttle"})
HOLDS = {("GPU 3", "gpu.no_throttle"): RuleResult(Verdict.CONCERN, "slowed down; expected none")}


def test_the_catalogue_has_every_number() -> None:
    assert Timing(5, 3, 2, 6, 2, 3600.0, 3, 2.0) == TIMING


def test_a_sites_own_numbers_decide_when_a_state_is_said() -> None:
    site = Catalog({"watch.opens_ticks": 1, "watch.closes_ticks": 2, "watch.flaps_times": 1})
    states = States(Timing.of(site))
    ticks = [states.tick("gpu001", RULES, HOLDS if look == "x" else {}, 10.0 * at) for at, look in enumerate("x..x")]
    assert [[change.kind for change in changes] for changes in ticks] == [
        [ChangeKind.OPENED],
        [],
        [ChangeKind.CLOSED],
        [ChangeKind.FLAPPING],
    ]


@pytest.mark.parametrize(("verdict", "tick"), [(Verdict.FAIL, 1), (Verdict.CONCERN, 2)])
def test_a_fail_may_be_said_sooner_than_a_concern(verdict: Verdict, tick: int) -> None:
    states, holds = States(TIMING), {key: RuleResult(verdict, "slowed down") for key in HOLDS}
    ticks = [states.tick("gpu001", RULES, holds, 10.0 * at, TIMING.slowdown_opens_ticks) for at in range(3)]
    assert [bool(changes) for changes in ticks] == [at == tick for at in range(3)]


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[verdicts."gpu.persistence_mod"]\nconcern = "fail"\n', "did you mean gpu.persistence_mode?"),
        ("", "site.toml is empty; expected a policy"),
    ],
    ids=["a slip", "empty"],
)
def test_a_policy_by_which_nothing_would_be_read_is_refused_as_by_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    policy = tmp_path / "site.toml"
    policy.write_text(text, encoding="utf-8")
    assert main(["watch", "--cluster", "local", "--for", "1s", "--policy", str(policy)]) == 4
    assert said in capsys.readouterr().err
