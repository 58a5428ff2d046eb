"""This machine as a node: a program's output comes back, and nothing outlives its deadline."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from clusterproof.plugins.agent.program import ProbeOptions
from clusterproof.plugins.core.cluster import Cluster, Target
from clusterproof.plugins.core.evidence import NodeEvidence, Unreached
from clusterproof.plugins.transport import (
    MAX_ANSWER_BYTES,
    PROGRAM_ENDED,
    Answer,
    Limits,
    Program,
    connection_for,
    sessions_for,
)
from clusterproof.plugins.transport.gather import gather
from tests.builders.probed import padded, reported

END_S = 600.0


def answer_of(command: str, stdin: bytes = b"", answer_s: float = 20.0) -> Answer:
    answers: list[Answer] = []
    limits = Limits(answer_s=answer_s)
    connection_for("local").run([Target("here")], Program(command, stdin), limits, lambda _, seen: answers.append(seen))
    [answer] = answers
    return answer


@pytest.mark.long
def test_a_program_of_any_length_reaches_the_node_whole(tmp_path: Path) -> None:
    evidence = reported("local", [Target("here")], [padded(tmp_path, 3_000_000)])["here"]
    assert evidence.collectors["padded"].value == 3_000_000


def is_gone(pid: int) -> bool:
    """Whether a process ends within a while; an unreaped process counts as ended."""
    deadline = time.monotonic() + END_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.long
def test_both_outputs_come_back_in_one() -> None:
    answer = answer_of("cat; echo printed >&2; exit 3", b"given\n")
    assert (answer.output, answer.unreached, answer.detail) == (b"given\nprinted\n", None, "")
    assert answer.seconds > 0


@pytest.mark.long
def test_a_large_input_and_a_large_output_do_not_wait_for_each_other() -> None:
    payload = os.urandom(1_000_000)
    assert answer_of("cat", payload).output == payload


@pytest.mark.long
def test_a_program_that_does_not_read_its_input_answers_all_the_same() -> None:
    assert answer_of("exec 0<&-; echo deaf", bytes(1_000_000)).output == b"deaf\n"


@pytest.mark.long
def test_an_answer_is_read_up_to_its_bound() -> None:
    answer = answer_of("yes")
    assert len(answer.output) == MAX_ANSWER_BYTES
    assert answer.unreached is None


@pytest.mark.long
def test_a_program_that_never_ends_is_killed_with_its_children(tmp_path: Path) -> None:
    command = f"sleep 60 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/shell; echo begun; wait"
    answer = answer_of(command, answer_s=0.5)
    assert (answer.output, answer.unreached) == (b"begun\n", Unreached.TIMED_OUT)
    assert answer.detail == "did not end within 0.5 s; 6 bytes came"
    assert all(is_gone(int((tmp_path / name).read_text())) for name in ("shell", "child"))


@pytest.mark.long
def test_a_program_that_never_reads_or_writes_is_killed() -> None:
    assert answer_of("sleep 60", bytes(1_000_000), answer_s=0.5).unreached is Unreached.TIMED_OUT


@pytest.mark.long
def test_a_program_that_leaves_its_output_open_is_not_waited_for(tmp_path: Path) -> None:
    answer = answer_of(f"sleep 60 & echo $! > {tmp_path}/child; echo done")
    assert (answer.output, answer.unreached) == (b"done\n", None)
    assert is_gone(int((tmp_path / "child").read_text()))


def test_a_shell_that_does_not_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.local._SHELL", "/nowhere/sh")
    answer = answer_of("echo")
    assert answer.unreached is Unreached.LOST
    assert answer.detail == "/nowhere/sh does not start: No such file or directory"


def test_the_last_words_of_a_program_that_stays_are_heard_after_it_has_ended() -> None:
    heard: list[bytes] = []
    session = sessions_for("local", Limits()).on_node(str)
    ended = session.run(Target("here"), Program("head -c 5; echo no Python; exit 1", b"begin"), heard.append, END_S)
    assert ended == PROGRAM_ENDED
    assert b"".join(heard) == b"beginno Python\n"


def test_a_program_that_does_not_take_its_input_is_heard_too() -> None:
    heard: list[bytes] = []
    session = sessions_for("local", Limits()).on_node(str)
    ended = session.run(Target("here"), Program("exec 0<&-; echo why", bytes(1_000_000)), heard.append, END_S)
    assert (ended, b"".join(heard)) == (PROGRAM_ENDED, b"why\n")


def test_only_known_connections_have_a_name() -> None:
    with pytest.raises(LookupError, match="no connection is called 'sssh'; known are local, ssh"):
        connection_for("sssh")


def unreached_with(options: ProbeOptions, settings: dict[str, str]) -> list[Unreached | None]:
    """Why this machine does not answer: the message and the recorded reason."""
    cluster, early = Cluster("here", "local", (Target("here"),)), list[NodeEvidence]()
    limits = Limits(answer_s=1.0, settings=settings)
    answers = gather(cluster, connection_for("local"), ("kernel",), options, limits, early.append)
    return [evidence.unreached for evidence in (*early, answers["here"])]


@pytest.mark.long
@pytest.mark.parametrize("command", ["false", "no-such-runtime run IMAGE", "echo hello #", "sleep 600 #"])
def test_a_command_that_brings_no_container_is_nothing_against_the_node(command: str) -> None:
    assert unreached_with(ProbeOptions(in_container=command), {}) == [Unreached.NO_CONTAINER] * 2


@pytest.mark.parametrize("options", ["--gres=gpu:8 --container-image=x", "--container-name=x", "--container=/bundle"])
def test_a_container_that_srun_does_not_begin_is_nothing_against_the_node(
    options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clusterproof.plugins.transport.local._SHELL", "/nowhere/sh")
    assert unreached_with(ProbeOptions(), {"srun_options": options}) == [Unreached.NO_CONTAINER] * 2
    assert unreached_with(ProbeOptions(), {"srun_options": "--gres=gpu:8"}) == [Unreached.LOST] * 2
