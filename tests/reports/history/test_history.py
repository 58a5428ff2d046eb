"""The history: what a run adds, and what several runs show together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.core.result import Measured
from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.evidence.perf.facts import SLOWER
from clusterproof.reports.document.trend import counted
from clusterproof.reports.history import Gpu, NodeIdentity
from clusterproof.reports.history.changes import Change, Changes, between, change, headline
from clusterproof.reports.history.trends import flaps, offenders, places, trends
from clusterproof.reports.history.words import ago, folded, page
from tests.reports.history.kept import CONCERN, ECC, FAIL, INCOMPLETE, PASS, add, machine, past, result

NA = Verdict.NOT_APPLICABLE


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "history.sqlite"


@pytest.mark.parametrize(
    ("before", "now", "kind"),
    [
        (None, PASS, ""),
        (None, FAIL, "new"),
        (PASS, INCOMPLETE, "new"),
        (NA, CONCERN, "new"),
        (FAIL, FAIL, "still"),
        (FAIL, CONCERN, "still"),
        (FAIL, INCOMPLETE, "still"),
        (CONCERN, FAIL, "new"),
        (INCOMPLETE, FAIL, "new"),
        (INCOMPLETE, INCOMPLETE, "still"),
        (FAIL, PASS, "gone"),
        (INCOMPLETE, PASS, "gone"),
        (FAIL, NA, "gone"),
        (PASS, NA, ""),
    ],
)
def test_what_becomes_of_a_verdict(before: Verdict | None, now: Verdict, kind: str) -> None:
    assert change(before, now) == kind


def test_what_one_cause_left_open_is_one_line_behind_what_was_found() -> None:
    gaps = [Change(f"gpu.{name}", "gpu001", None, INCOMPLETE, name, "unreachable: refused") for name in ("a", "b", "c")]
    assert list(folded("new", [*gaps, Change("host.word", "gpu002", None, FAIL, "Word")])) == [
        "  new   gpu002: fail: Word (host.word)",
        "  new   gpu001: incomplete: unreachable: refused (3 checks)",
    ]


def test_what_could_be_measured_again_does_not_hide_what_was_mended() -> None:
    measured = [Change(f"gpu.{name}", "gpu001", INCOMPLETE, PASS, name) for name in ("a", "b", "c")]
    assert list(folded("gone", [*measured, Change("host.word", "gpu002", FAIL, PASS, "Word")])) == [
        "  gone  gpu002: now passes: Word (host.word)",
        "  gone  gpu001: now passes (3 checks)",
    ]


def test_nodes_that_fail_a_check_for_different_causes_are_one_line() -> None:
    slow = Change("perf.gpu_gemm", "gpu001", None, FAIL, "GEMM", SLOWER)
    assert list(folded("new", [slow, replace(slow, node="gpu002", cause="")])) == [
        "  new   gpu[001-002]: fail: GEMM (perf.gpu_gemm)"
    ]


@pytest.mark.parametrize("cause", ["", SLOWER])
def test_each_check_that_is_found_to_fail_once_it_could_be_measured_is_named(cause: str) -> None:
    failed = [Change(f"gpu.{name}", "gpu001", INCOMPLETE, FAIL, name, cause) for name in ("a", "b")]
    assert list(folded("new", failed)) == ["  new   gpu001: fail: a (gpu.a)", "  new   gpu001: fail: b (gpu.b)"]


def test_what_was_found_is_compared_with_the_run_before_and_with_the_last_green_one(file: Path) -> None:
    add(file, result("gpu001", PASS), result("gpu002", PASS), result("gpu003", CONCERN))
    green = past(file).runs[-1]
    add(file, result("gpu001", FAIL), result("gpu002", FAIL), result("gpu003", CONCERN))
    last = add(file, result("gpu001", FAIL), result("gpu002", PASS), result("gpu003", PASS))
    assert [run.is_green for run in past(file).runs] == [True, False, False]
    by_run = between(past(file), last.number - 1, last.number)
    assert [finding.node for finding in by_run.new] == []
    assert [finding.node for finding in by_run.still] == ["gpu001"]
    assert [finding.node for finding in by_run.gone] == ["gpu002", "gpu003"]
    by_green = between(past(file), green.number, last.number)
    assert [finding.node for finding in by_green.new] == ["gpu001"]
    assert [finding.node for finding in by_green.gone] == ["gpu003"]


def test_a_run_with_nothing_but_what_does_not_apply_and_passes_is_green_and_one_without_results_is_not(
    file: Path,
) -> None:
    assert add(file, result("gpu001", PASS), result("gpu002", NA)).is_green
    assert not add(file, result("gpu001", NA)).is_green
    assert not add(file).is_green
    assert not add(file, result("gpu001", INCOMPLETE)).is_green


def test_what_comes_and_goes_flaps_and_missing_evidence_between_is_neither(file: Path) -> None:
    for verdict in (FAIL, PASS, INCOMPLETE, FAIL, PASS):
        add(file, result("gpu001", verdict), result("gpu002", FAIL))
    for verdict in (FAIL, INCOMPLETE, FAIL):
        add(file, result("gpu003", verdict))
    (flap,) = flaps(past(file))
    assert (flap.node, flap.came, flap.looked, flap.now) == ("gpu001", 2, 4, PASS)


def test_a_gpu_that_fails_again_in_the_instance_that_replaced_its_node_is_the_one_to_blame(file: Path) -> None:
    add(file, result("gpu003", FAIL, gpus=[1]), identities={"gpu003": machine("i-old", "GPU-a", "GPU-b")})
    add(file, result("gpu003", FAIL, gpus=[0]), identities={"gpu003": machine("i-new", "GPU-b", "GPU-c")})
    (offender,) = offenders(past(file))
    assert (offender.id, offender.serial, offender.instances, offender.now) == (
        "GPU-b",
        "1650",
        ("i-old", "i-new"),
        "gpu003",
    )
    assert offender.has_moved
    assert places(past(file)) == []
    assert any("came back in i-new, and the fault with it" in line for line in page(past(file)))


def test_a_gpu_that_fails_again_in_another_node_is_followed(file: Path) -> None:
    add(file, result("gpu003", FAIL, gpus=[0]), identities={"gpu003": machine("i-old", "GPU-a")})
    here = {"gpu003": machine("i-new", "GPU-z"), "gpu007": machine("i-other", "GPU-a")}
    add(file, result("gpu003", PASS), result("gpu007", FAIL, gpus=[0]), identities=here)
    (offender,) = offenders(past(file))
    assert (offender.nodes, offender.now) == (("gpu003", "gpu007"), "gpu007")
    assert any("moved from gpu003 to gpu007, and the fault with it" in line for line in page(past(file)))


def test_a_gpu_is_where_it_was_seen_last_although_its_first_node_was_not_checked_since(file: Path) -> None:
    first = {"gpu001": machine("i-1", "GPU-b"), "gpu016": machine("i-16", "GPU-a")}
    for _ in range(2):
        add(file, result("gpu001", PASS), result("gpu016", FAIL, gpus=[0]), identities=first)
    add(file, result("gpu001", PASS), identities={"gpu001": machine("i-2", "GPU-a")})
    (offender,) = offenders(past(file))
    assert (offender.nodes, offender.now) == (("gpu016",), "gpu001")
    assert any("now in gpu001" in line for line in page(past(file)))


def test_a_gpu_that_came_back_to_its_first_node_moved_to_that(file: Path) -> None:
    for node, other in (("gpu003", "gpu007"), ("gpu007", "gpu003"), ("gpu003", "gpu007")):
        here = {node: machine(f"i-{node}", "GPU-a"), other: machine(f"i-{other}", "GPU-z")}
        add(file, result(node, FAIL, gpus=[0]), result(other, PASS), identities=here)
    assert [offender.now for offender in offenders(past(file))] == ["gpu003"]
    assert any("moved from gpu007 to gpu003, and the fault with it" in line for line in page(past(file)))


def test_a_fault_that_stays_with_the_node_when_its_hardware_changes_is_of_the_place(file: Path) -> None:
    for instance, gpu in (("i-1", "GPU-a"), ("i-1", "GPU-a"), ("i-2", "GPU-b")):
        add(file, result("gpu003", FAIL, gpus=[0]), identities={"gpu003": machine(instance, gpu)})
    (place,) = places(past(file))
    assert (place.node, place.hardware) == ("gpu003", ("GPU-a", "GPU-b"))
    (offender,) = offenders(past(file))
    assert (offender.id, offender.now) == ("GPU-a", "")
    assert any(line.split()[-2:] == ["replaced", ECC] for line in page(past(file)))


def test_a_machine_with_another_serial_number_has_not_the_gpus_of_the_one_before(file: Path) -> None:
    for _ in range(2):
        here = NodeIdentity("", "chassis-1", (Gpu(0, "GPU-a", "1650"),))
        add(file, result("gpu003", FAIL, gpus=[0]), identities={"gpu003": here})
    add(file, result("gpu003", FAIL, "gpu.gpu_answers"), identities={"gpu003": NodeIdentity("", "chassis-2")})
    (offender,) = offenders(past(file))
    assert (offender.id, offender.now) == ("GPU-a", "")
    assert past(file).identity("gpu003", 3) == NodeIdentity("", "chassis-2")


def test_gpus_that_were_put_into_another_chassis_are_still_those_of_the_node(file: Path) -> None:
    for chassis, gpus in (("1", (Gpu(0, "GPU-a"), Gpu(1, "GPU-b"))), ("2", (Gpu(0, "GPU-a"),))):
        add(file, result("gpu003", PASS), identities={"gpu003": NodeIdentity("", chassis, gpus)})
    assert [gpu.uuid for gpu in past(file).identity("gpu003", 2).gpus] == ["GPU-a", "GPU-b"]


def test_a_gpu_that_is_lost_is_known_from_an_earlier_run(file: Path) -> None:
    add(file, result("gpu003", PASS), identities={"gpu003": machine("i-1", "GPU-a", "GPU-b")})
    for _ in range(2):
        lost = {"gpu003": NodeIdentity("i-1", "", (Gpu(0, "GPU-a", "1650"),))}
        add(file, result("gpu003", FAIL, "gpu.gpu_answers", gpus=[1]), identities=lost)
    assert [offender.id for offender in offenders(past(file))] == ["GPU-b"]


def test_a_gpu_that_is_lost_is_not_called_replaced_though_the_others_are_numbered_anew(file: Path) -> None:
    for _ in range(2):
        add(file, result("gpu003", FAIL, gpus=[1]), identities={"gpu003": machine("i-1", "GPU-a", "GPU-b", "GPU-c")})
    add(file, result("gpu003", FAIL, gpus=[1]), identities={"gpu003": machine("i-1", "GPU-a", "GPU-c")})
    (offender,) = offenders(past(file))
    assert (offender.id, offender.now, len(offender.runs)) == ("GPU-b", "gpu003", 2)
    gpus = past(file).identity("gpu003", 3).gpus
    assert [(gpu.index, gpu.uuid) for gpu in gpus] == [(0, "GPU-a"), (1, "GPU-b"), (1, "GPU-c")]


def test_a_fault_of_no_gpu_is_the_instances(file: Path) -> None:
    for node in ("gpu001", "gpu002"):
        add(file, result(node, FAIL, "host.mce_edac"), identities={node: machine("i-1", "GPU-a")})
    assert [(offender.kind, offender.id, offender.nodes) for offender in offenders(past(file))] == [
        ("instance", "i-1", ("gpu001", "gpu002"))
    ]


def test_the_bandwidth_of_every_node_is_followed_and_the_worst_fall_comes_first(file: Path) -> None:
    for fall in (0.0, 1.0, 60.0):
        numbers = [
            Measured("busbw", "gpu001", 480 + fall / 10, "GB/s"),
            Measured("busbw", "gpu002", 480 - fall, "GB/s"),
        ]
        add(file, result("gpu001", PASS), measured=[*numbers, Measured("busbw", "gpu003", float("nan"), "GB/s")])
    worst, best = trends(past(file))
    assert (worst.node, worst.last, worst.median_before, len(worst.values)) == ("gpu002", 420, 479.5, 3)
    assert best.node == "gpu001"
    text = "\n".join(page(past(file)))
    assert "busbw per node, in GB/s" in text
    assert "-12.4 %  420   479.5  3     gpu002  ███▇"[:30] in text


def test_the_page_folds_nodes_and_sorts_by_a_column(file: Path) -> None:
    add(file, *(result(f"gpu{number:03d}", PASS) for number in range(1, 21)))
    add(file, *(result(f"gpu{number:03d}", FAIL) for number in range(1, 19)), result("gpu020", CONCERN, "a.b"))
    assert "  new     fail     pass           gpu.no_uncorrected_ecc  gpu[001-018]" in list(page(past(file)))
    rows = [line for line in page(past(file), sort="check") if line.startswith("  new")]
    assert [row.split()[-2] for row in rows[:2]] == ["a.b", ECC]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([], "nothing has changed"),
        ([("a", "gpu001", FAIL, FAIL), ("a", "gpu002", FAIL, FAIL)], "nothing has changed; 1 finding still there"),
        (
            [("a", "gpu003", PASS, FAIL), ("a", "gpu004", PASS, FAIL), ("b", "gpu005", None, CONCERN)],
            "2 findings new on gpu[003-005]",
        ),
        (
            [("a", "gpu003", PASS, FAIL), ("a", "gpu004", FAIL, PASS), ("b", "gpu005", FAIL, FAIL)],
            "1 finding new on gpu003; 1 gone from gpu004; 1 still there",
        ),
        ([("a", "gpu004", FAIL, PASS), ("b", "gpu004", CONCERN, NA)], "2 findings gone from gpu004"),
        (
            [(check, "gpu005", PASS, INCOMPLETE) for check in "abc"],
            "newly incomplete: gpu005",
        ),
        (
            [(check, "gpu005", INCOMPLETE, PASS) for check in "abc"] + [("a", "gpu006", INCOMPLETE, INCOMPLETE)],
            "no longer incomplete: gpu005; still incomplete: gpu006",
        ),
        ([("a", "gpu005", PASS, INCOMPLETE), ("b", "gpu005", INCOMPLETE, INCOMPLETE)], "still incomplete: gpu005"),
        ([("a", "gpu001", FAIL, INCOMPLETE)], "nothing has changed; 1 finding still there"),
        ([("a", "gpu001", CONCERN, FAIL), ("a", "gpu002", INCOMPLETE, FAIL)], "1 finding new on gpu[001-002]"),
        ([("a", f"rack{'x' * node}", PASS, FAIL) for node in range(40)], "1 finding new on 40 nodes"),
    ],
)
def test_the_headline_counts_findings_and_names_their_nodes(
    changes: list[tuple[str, str, Verdict | None, Verdict]], words: str
) -> None:
    assert headline(_sorted(Change(*fields) for fields in changes)) == words


def _sorted(changes: Iterable[Change]) -> Changes:
    kinds: dict[str, list[Change]] = {"new": [], "still": [], "gone": []}
    for entry in changes:
        kinds[entry.kind].append(entry)
    return Changes(**{kind: tuple(of_kind) for kind, of_kind in kinds.items()})


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-7200, "by a clock that was ahead of this one"),
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (7200, "2 h ago"),
        (90000, "25 h ago"),
        (172800, "2 days ago"),
    ],
)
def test_how_long_ago_a_run_was(seconds: float, words: str) -> None:
    assert ago(seconds) == words


def test_what_a_line_of_the_trend_has_no_room_for_is_counted() -> None:
    assert counted([f"gpu.check_{number} on gpu001" for number in range(10)]).endswith("gpu.check_9 on gpu001")
    many = counted([f"gpu.check_{number} on gpu001" for number in range(25)])
    assert many.endswith("gpu.check_9 on gpu001 and 15 more")
    long = counted([f"gpu.check_{number} on {'x' * 200}" for number in range(5)])
    assert long.endswith(f"{'x' * 200} and 3 more")
