"""Reported changes are kept on disk, whole lines only; a restarted watch continues with those that are open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from clusterproof.plugins.core.verdict import Verdict
from clusterproof.plugins.watch import Change, ChangeKind, Key
from clusterproof.plugins.watch import recording as module
from clusterproof.plugins.watch.changes_file import CHANGES_FILE, append_changes, read_changes
from clusterproof.plugins.watch.own_health import SOURCE
from clusterproof.plugins.watch.recording import Recording
from tests.testbed.needs import needs_root
from tests.watch.days import NODE, Day
from tests.watch.small_disk import no_room, small_disk

FOREVER = (
    '{"time": 1'
    + "0" * 400
    + ', "kind": "opened", "node": "a", "device": "", "rule": "b", "verdict": "fail", "message": ""}'
)
NO_COUNT = FOREVER.replace("0" * 400, "").replace("}", ', "findings": 0}')
XID_79 = "NVRM: Xid (PCI:0000:64:00): 79, pid='<unknown>', GPU has fallen off the bus."


def change(message: str = "remapping failed", kind: ChangeKind = ChangeKind.OPENED) -> Change:
    return Change(kind, Key(NODE, "GPU 1", "gpu.row_remap"), Verdict.FAIL, message, 1.7e9)


def test_what_was_kept_reads_as_it_was_said(tmp_path: Path) -> None:
    changes = [change(), change(kind=ChangeKind.WORSE), change(kind=ChangeKind.CLOSED)]
    append_changes(tmp_path / "changes", changes, 1.7e9)
    assert list(read_changes(tmp_path / "changes")) == changes


def test_how_many_things_a_change_names_is_a_value_and_no_word_of_a_node_counts(tmp_path: Path) -> None:
    """A message is cut, and may quote a node's text."""
    quoting = replace(change("Xid 79: it; also quoted"), findings=3)
    append_changes(tmp_path / "changes", [quoting], 1.7e9)
    assert list(read_changes(tmp_path / "changes")) == [quoting]


def test_of_a_file_from_before_that_was_a_value_the_words_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "changes"
    append_changes(path, [change("hot; expected cool; also slow; expected fast")], 1.7e9)
    path.write_text(path.read_text(encoding="utf-8").replace(', "findings": 1', ""), encoding="utf-8")
    assert [kept.findings for kept in read_changes(path)] == [2]


@pytest.mark.parametrize("torn", [b'{"time": 1', b"x" * 200_000])
def test_a_torn_line_is_cut_before_the_next_is_written(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "changes"
    append_changes(path, [change("first")], 1.7e9)
    path.write_bytes(path.read_bytes() + torn)
    assert [kept.message for kept in read_changes(path)] == ["first"]
    append_changes(path, [change("second")], 1.7e9)
    assert path.read_bytes().count(b"\n") == 2
    assert [kept.message for kept in read_changes(path)] == ["first", "second"]


@pytest.mark.parametrize(
    "line",
    ["[]", "1", "{}", '{"node": 1}', '{"time": "x", "kind": "opened"}', "[" * 100_000, "\xff", FOREVER, NO_COUNT],
)
def test_a_line_that_holds_no_change_is_skipped(tmp_path: Path, line: str) -> None:
    path = tmp_path / "changes"
    append_changes(path, [change()], 1.7e9)
    path.write_bytes(line.encode("latin-1") + b"\n" + path.read_bytes())
    assert list(read_changes(path)) == [change()]


@needs_root
def test_what_is_said_while_the_disk_is_full_is_kept_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 50.0)
    own: list[str] = []
    with small_disk(tmp_path) as (folder, fill, free):
        kept = Recording(folder, 10.0, own.append)
        kept.changes([change("before")], 1.7e9, 0.0)
        fill()
        for at in range(100):
            kept.changes([change(f"{at} {'x' * 500}")], 1.7e9, float(at))
        assert next(read_changes(folder / CHANGES_FILE)).message == "before"
        free()
        kept.changes([change("after")], 1.7e9, 200.0)
        messages = [entry.message.split()[0] for entry in read_changes(folder / CHANGES_FILE)]
        assert messages == ["before", *map(str, range(100)), "after"]
    assert own == [
        f"nothing is recorded under {folder}: No space left on device; watching goes on",
        f"recording under {folder} again",
    ]


def test_what_waits_for_the_disk_when_the_watch_ends_is_written_if_there_is_room_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Recording(tmp_path, 10.0, lambda _: None)
    with monkeypatch.context() as disk:
        disk.setattr(module, "append_changes", no_room)
        kept.changes([change("while full")], 1.7e9, 100.0)
    kept.close(110.0)
    assert [entry.message for entry in read_changes(tmp_path / CHANGES_FILE)] == ["while full"]


def again(day: Day) -> Day:
    """Another watch of that node, which continues with the reported changes."""
    return Day(before=tuple(day.said), boot_id=day.boot_id)


@pytest.mark.long
def test_a_watch_that_begins_again_says_nothing_twice_and_says_what_is_over() -> None:
    day = Day()
    day.log(XID_79)
    day.ticks(3)
    second = again(day)
    second.visit(kernel_log={"lines": [[90_000.0, XID_79]]})
    second.ticks(3)
    assert second.of("gpu.no_xid") == []
    assert set(second.watch.verdicts.values()) == {Verdict.FAIL}
    second.visit()
    assert second.of("gpu.no_xid") == ["closed"]


@pytest.mark.long
def test_what_flapped_flaps_on_for_the_watch_that_begins_again() -> None:
    day = Day()
    for _ in range(3):
        day.log(XID_79)
        day.visit()
    assert day.of("gpu.no_xid") == ["opened", "closed", "opened", "closed", "flapping"]
    second = again(day)
    second.visit()
    second.log(XID_79)
    assert second.of("gpu.no_xid") == []
    assert [seen.message for key, seen in second.watch.states.open.items() if key.rule == "gpu.no_xid"]


@pytest.mark.long
def test_a_node_that_flaps_and_stays_silent_is_said_and_that_it_is_back() -> None:
    day = Day()
    for _ in range(3):
        day.silence(60)
        day.ticks(6)
    day.silence(24 * 3600)
    day.ticks(6)
    flapped = ["opened", "closed", "opened", "closed", "flapping"]
    assert day.of("watch.silent") == [*flapped, "opened", "closed"]
    assert [happened.message for happened in day.said][-1].startswith("no sample for 86400 s")


def test_what_a_check_of_an_earlier_version_found_is_over_once_the_node_is_checked_without_it() -> None:
    """Nothing else would ever close it, and a receiver would be reminded of it for good."""
    found, own = (
        Change(ChangeKind.OPENED, Key(NODE, "", rule), Verdict.FAIL, "", 0.0) for rule in ("host.gone", SOURCE)
    )
    day = Day(before=(found, own))
    assert day.of(found.key.rule) == []
    day.visit()
    assert day.of(found.key.rule) == ["closed"]
    assert list(day.watch.states.open) == [own.key]


def test_what_was_said_of_nodes_that_are_not_watched_now_is_left_alone() -> None:
    other = Change(ChangeKind.OPENED, Key("gone01", "", "gpu.no_xid"), Verdict.FAIL, "Xid 79", 0.0)
    day = Day(before=(other,))
    assert list(day.watch.states.open) == []
