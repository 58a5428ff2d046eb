"""A program or answer too long for its connection: how it is divided, what is kept, and that it is reported."""

from __future__ import annotations

import json
import random
import subprocess
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent import sending
from clusterproof.plugins.agent.packing import ARGUMENT
from clusterproof.plugins.agent.parts import Parts, joined, parts
from clusterproof.plugins.agent.program import ProbeOptions, Program, collector_names
from clusterproof.plugins.agent.sending import MIN_LINES, fitted
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import Collected, NodeEvidence, Status, Unreached
from clusterproof.plugins.transport import Answer, Connection, Limits, Unusable
from clusterproof.plugins.transport.gather import gather
from tests.builders.probed import padded

REQUESTED = sorted(collector_names())[:2]
READ = Collected(Status.READ, 1)
TWO = Parts(((frozenset("ab"), Program("one")), (frozenset("c"), Program("two"))))
BOTH = [NodeEvidence("n", {"a": READ, "b": READ}, seconds=1.0), NodeEvidence("n", {"c": READ}, seconds=2.0)]


@pytest.mark.any_user
@pytest.mark.long
@pytest.mark.parametrize("longest", [None, 10**6])
def test_all_collectors_travel_together_where_there_is_room(longest: int | None) -> None:
    packed = parts(collector_names(), ProbeOptions(), longest=longest)
    assert [names for names, _ in packed.programs] == [frozenset(collector_names())]
    assert packed.left_out == {}


@pytest.mark.any_user
@pytest.mark.long
@pytest.mark.parametrize("on_stdin", [True, False])
@pytest.mark.parametrize("longest", [20_000, 25_000, 40_000])
def test_each_collector_travels_once_in_programs_that_are_short_enough(longest: int, on_stdin: bool) -> None:
    packed = parts(collector_names(), ProbeOptions(), on_stdin=on_stdin, longest=longest)
    travel = [name for names, _ in packed.programs for name in names]
    assert sorted([*travel, *packed.left_out]) == sorted(collector_names())
    assert {len(sent.command) + len(sent.stdin) <= longest for _, sent in packed.programs} == {True}
    assert len({sent.nonce for _, sent in packed.programs}) == len(packed.programs) > 1


@pytest.mark.long
@pytest.mark.any_user
def test_where_no_collector_is_short_enough_the_node_is_visited_all_the_same(tmp_path: Path) -> None:
    packed = parts(["padded"], ProbeOptions(), [padded(tmp_path, 80_000)], longest=60_000)
    assert [names for names, _ in packed.programs] == [frozenset()]
    assert set(packed.left_out) == {"padded"}


class Bare(Connection):
    """A connection without a limit on programs."""


class Commanding(Bare):
    takes_stdin = False


class Short(Commanding):
    def longest_program(self, _limits: Limits) -> int:
        return 7


@pytest.mark.any_user
@pytest.mark.parametrize(("kind", "longest"), [(Bare, None), (Commanding, ARGUMENT), (Short, 7)])
def test_a_connection_that_does_not_say_more_is_given_commands_that_are_one_argument(
    kind: type[Connection], longest: int | None
) -> None:
    assert kind().longest_program(Limits()) == longest


@pytest.mark.any_user
def test_the_answers_to_all_programs_are_one() -> None:
    assert joined(BOTH, TWO) == NodeEvidence("n", {"a": READ, "b": READ, "c": READ}, seconds=3.0)


@pytest.mark.any_user
@pytest.mark.parametrize(("silent", "lost"), [(0, "ab"), (1, "c")])
def test_a_program_that_is_not_answered_costs_its_own_collectors(silent: int, lost: str) -> None:
    answers = [*BOTH]
    answers[silent] = NodeEvidence("n", unreached=Unreached.TIMED_OUT, detail="no end")
    evidence = joined(answers, TWO)
    assert evidence.unreached is None
    assert set(evidence.collectors) == set("abc")
    assert {name for name, collector in evidence.collectors.items() if collector.status is Status.CUT} == set(lost)
    message = f"its program, {silent + 1} of 2, was not answered: timed out: no end"
    assert {evidence.collectors[name].detail for name in lost} == {message}


@pytest.mark.any_user
def test_a_program_that_was_not_sent_any_more_leaves_its_collectors_incomplete() -> None:
    three = Parts((*TWO.programs, (frozenset("d"), Program("three"))))
    evidence = joined([BOTH[0], NodeEvidence("n", unreached=Unreached.LOST, detail="gone")], three)
    assert {name: collector.status for name, collector in evidence.collectors.items()} == {
        "a": Status.READ,
        "b": Status.READ,
        "c": Status.CUT,
        "d": Status.CUT,
    }


@pytest.mark.any_user
def test_a_node_that_answers_no_program_is_not_reached_for_the_first_reason() -> None:
    answers = [NodeEvidence("n", unreached=why, detail=why.value) for why in (Unreached.GARBLED, Unreached.LOST)]
    assert (joined(answers, TWO).unreached, joined(answers, TWO).detail) == (Unreached.GARBLED, "garbled")


@pytest.mark.any_user
def test_an_answer_says_nothing_of_the_collectors_of_another_program() -> None:
    forged = Collected(Status.READ, 2)
    assert joined([BOTH[0], NodeEvidence("n", {"a": forged, "c": READ})], TWO).collectors["a"] == READ


@pytest.mark.any_user
def test_what_no_program_takes_is_said() -> None:
    evidence = joined([BOTH[0]], Parts(TWO.programs[:1], {"long": "its program is long"}))
    assert evidence.collectors["long"] == Collected(Status.CUT, detail="its program is long")


@pytest.mark.any_user
def test_of_a_program_whose_answer_was_too_long_each_collector_is_too_long() -> None:
    cut = NodeEvidence("n", unreached=Unreached.CUT, detail="its end is missing", too_long=True)
    evidence = joined([BOTH[0], cut], TWO)
    assert {name for name, collector in evidence.collectors.items() if collector.too_long} == set(TWO.programs[1][0])


class Closing(Commanding):
    """A connection that takes one collector per program, and refuses all after a number of programs."""

    def __init__(self, answered: int) -> None:
        self.left = answered

    def longest_program(self, _limits: Limits) -> int:
        whole = parts(REQUESTED, ProbeOptions(), on_stdin=False).programs[0][1]
        return len(whole.command) - 1

    def run(self, targets: Sequence[Target], program: Program, _limits: Limits, answered: Callable[..., None]) -> None:
        if not self.left:
            raise Unusable("the token has expired; expected another")
        self.left -= 1
        output = subprocess.run(program.command, shell=True, capture_output=True, check=True).stdout
        for target in targets:
            answered(target, Answer(output))


@pytest.mark.any_user
@pytest.mark.long
def test_what_came_before_a_connection_was_refused_stays() -> None:
    cluster = Cluster("small", "closing", (Target("gpu001"), Target("gpu002")))
    kept: list[NodeEvidence] = []
    answers = gather(cluster, Closing(1), REQUESTED, ProbeOptions(), Limits(), kept.append)
    assert {name: evidence.unreached for name, evidence in answers.items()} == {"gpu001": None, "gpu002": None}
    lost = [collector.detail for collector in answers["gpu001"].collectors.values() if collector.status is Status.CUT]
    assert lost == ["its program, 2 of 2, was not answered: lost: the token has expired; expected another"]
    assert [evidence.node for evidence in kept] == ["gpu001", "gpu002"]
    with pytest.raises(Unusable):
        gather(cluster, Closing(0), REQUESTED, ProbeOptions(), Limits(), kept.append)


def noise(count: int, of: str = "") -> str:
    """Characters that compress to half as many bytes."""
    return random.Random(f"{of}{count}").randbytes(count // 2).hex()


def answer(lines: list[list[Any]], **collectors: object) -> dict[str, Any]:
    """A probe's answer: a kernel log with these lines, and these collectors."""
    values = {**collectors, "kernel_log": {"lines": lines, "truncated": False}}
    records = {name: {"status": "read", "value": value, "seconds": 0.1} for name, value in values.items()}
    return {"probe": {}, "collectors": records}


def after(record: dict[str, Any], max_bytes: int) -> dict[str, Any]:
    """The collectors that result."""
    text = fitted(record, max_bytes)
    assert len(zlib.compress(text, 6)) <= max_bytes
    return dict(json.loads(text)["collectors"])


def lines_of(begins: str, count: int, first_s: float = 0.0) -> list[list[Any]]:
    return [[first_s + n, f"{begins} {noise(200 + n, begins)}"] for n in range(count)]


def test_an_answer_that_fits_stays_as_it_is() -> None:
    record = answer(lines_of("Lustre:", 9), boot={"uptime_s": 1})
    assert after(json.loads(json.dumps(record)), 10_000) == record["collectors"]


def test_the_oldest_lines_of_the_longest_class_go_and_are_counted() -> None:
    storm, others = lines_of("LustreError:", 200), lines_of("EDAC MC0:", 20)
    storm[3].append(40)  # forty similar lines were left out before
    collectors = after(answer(others + storm, boot={"uptime_s": 1}), 12_000)
    log = collectors["kernel_log"]["value"]
    kept = [line for line in log["lines"] if line[1].startswith("Lustre")]
    assert [line for line in log["lines"] if line not in kept] == others
    assert kept == storm[-len(kept) :]
    assert log["cut"] == {"file_servers": [200 - len(kept) + 40, storm[-len(kept) - 1][0]]}
    assert collectors["boot"]["value"] == {"uptime_s": 1}


def test_what_is_worst_goes_last() -> None:
    xids = lines_of("NVRM: Xid (PCI:0000:53:00): 79,", 40)
    collectors = after(answer(xids + lines_of("nvidia:", 30, 50.0) + lines_of("Lustre:", 30, 90.0)), 10_500)
    log = collectors["kernel_log"]["value"]
    assert [line for line in log["lines"] if "Xid" in line[1]] == xids
    assert set(log["cut"]) == {"others", "file_servers"}
    assert len(log["lines"]) >= len(xids) + MIN_LINES


def test_where_the_log_is_short_the_longest_collector_goes_whole_and_says_why() -> None:
    collectors = after(answer(lines_of("nvidia:", 3), mounts={"all": noise(9000)}, pci={"all": noise(2000)}), 4000)
    assert collectors["mounts"] == {"status": "cut", "too_long": True, "seconds": 0.1}
    assert collectors["pci"]["status"] == collectors["kernel_log"]["status"] == "read"


def test_a_packed_answer_of_so_many_bytes_is_a_frame_of_no_more_characters() -> None:
    nonce = "cp0123456789"
    for room in (1000, 23_000, 100_000):
        packed = random.Random(room).randbytes(sending.bytes_within(room))
        lines = [f"{nonce}:begin.", *sending.lines(packed, nonce, sending.WIDE_BYTES)]
        assert sum(len(line) + 1 for line in lines) <= room


def test_of_a_collector_that_hung_what_it_said_goes_and_not_that_it_hung() -> None:
    record = answer(lines_of("Lustre:", 3), boot={"uptime_s": 1})
    hung = {"status": "stuck", "detail": "GPU 5: SIGKILL does not end it", "waits": ["nv_lock"], "seconds": 5.5}
    record["collectors"]["nvml"] = {**hung, "value": {"gpus": [{"uuid": noise(20_000)}]}}
    assert after(record, 5_000)["nvml"] == hung
