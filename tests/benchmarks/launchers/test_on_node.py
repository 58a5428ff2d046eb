"""The program that runs on a node: what it starts, how it ends, and that it leaves nothing behind."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.agent.payload import new_nonce
from clusterproof.plugins.benchmarks.launchers import visit
from clusterproof.plugins.benchmarks.launchers.cleanup import VARIABLE, clean_up
from clusterproof.plugins.benchmarks.launchers.rendezvous import READY, Acceptor, NotConnected, find_server, listen
from clusterproof.plugins.benchmarks.launchers.visit import MAX_BYTES, NodeAnswer, Visitor, node_program
from clusterproof.plugins.core.cluster import Target
from clusterproof.plugins.transport import Answer, Limits, connection_for
from tests.builders.pythons import interpreter
from tests.transport.loopback import free_port

HERE = Target("here")
LOCAL = Visitor(connection_for("local"), Limits(answer_s=60.0))
GONE_S = 600.0


def request(*commands: str, deadline_s: float = 30.0, run: str = "", **more: object) -> dict[str, Any]:
    entries = [{"shell": command, "environment": {}} for command in commands]
    return {"run": run or new_nonce(), "commands": entries, "deadline_s": deadline_s, "most_bytes": MAX_BYTES, **more}


def visited(*commands: str, **more: Any) -> NodeAnswer:
    return LOCAL.visit(HERE, request(*commands, **more), 60.0)


def living(run: str) -> list[str]:
    """What remains of a run, as text; waits for processes that are about to end."""
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{VARIABLE}={run}".encode() in (process / "environ").read_bytes().split(b"\0"):
                commands.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return commands


def is_soon_gone(run: str) -> bool:
    until = time.monotonic() + GONE_S
    while living(run) and time.monotonic() < until:
        time.sleep(0.05)
    return not living(run)


@pytest.mark.long
def test_a_node_that_is_only_asked_returns_its_name_and_addresses() -> None:
    answer = LOCAL.visit(HERE, {}, 60.0)
    assert (answer.unreached, answer.name, answer.outputs) == ("", os.uname().nodename, ())
    assert answer.addresses


@pytest.mark.long
def test_commands_run_at_once_each_with_its_output_and_exit_status(tmp_path: Path) -> None:
    pipe = shlex.quote(str(tmp_path / "pipe"))
    os.mkfifo(tmp_path / "pipe")
    answer = visited(f"cat {pipe}", f"echo there >{pipe}; echo aside >&2; exit 3")
    assert [(output.text, output.exit) for output in answer.outputs] == [("there\n", 0), ("aside\n", 3)]


@pytest.mark.long
def test_a_command_has_its_environment_and_the_mark_of_the_run() -> None:
    command = {"shell": f"echo $WORD ${VARIABLE}", "environment": {"WORD": "a 'b' $c"}}
    answer = LOCAL.visit(HERE, {**request(run="cp1"), "commands": [command]}, 60.0)
    assert answer.outputs[0].text == "a 'b' $c cp1\n"


@pytest.mark.long
def test_a_command_runs_in_a_folder_that_no_other_user_may_leave_settings_or_libraries_in() -> None:
    (output,) = visited("pwd; stat -c '%u %A' .").outputs  # UCX, for one, finally reads ./ucx.conf
    folder, owner, mode = output.text.split()
    assert int(owner) in (0, os.geteuid()), folder
    assert (mode[5], mode[8]) == ("-", "-"), folder


@pytest.mark.long
def test_a_long_output_keeps_its_head_and_tail() -> None:
    answer = visited("echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
    text = answer.outputs[0].text
    assert text.startswith("first\nxxx")
    assert text.endswith("xxx\nlast\n")
    assert "bytes left out]" in text
    assert len(text) < MAX_BYTES + 100


@pytest.mark.long
def test_what_a_command_leaves_behind_does_not_hold_up_its_answer_and_is_ended() -> None:
    run = new_nonce()
    answer = visited("setsid sleep 1000 & echo done", run=run)
    assert (answer.outputs[0].text, answer.outputs[0].exit, answer.left) == ("done\n", 0, ())
    assert living(run) == []


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000",
        "trap '' TERM; sleep 1000 & wait; sleep 1000",
        "setsid sh -c 'sleep 1000 & wait' & wait; sleep 1000",
    ],
    ids=["that ends when asked", "that does not", "whose children have a session of their own"],
)
def test_at_its_deadline_a_command_is_ended_with_all_that_it_started(command: str) -> None:
    run = new_nonce()
    answer = visited(f"echo began; {command}", deadline_s=0.5, run=run)
    assert (answer.outputs[0].text, answer.outputs[0].exit, answer.left) == ("began\n", None, ())
    assert living(run) == []


def start(run: str, *commands: str, **more: Any) -> subprocess.Popen[bytes]:
    """Start the program; yields it with its commands and everything that sleeps in them."""
    program = node_program(request(*commands, run=run, **more), run, on_stdin=True)
    process = subprocess.Popen(
        ["/bin/sh", "-c", program.command], stdin=-1, stdout=-1, stderr=-2, start_new_session=True
    )
    assert process.stdin
    process.stdin.write(program.stdin)
    process.stdin.close()
    until = time.monotonic() + GONE_S
    while sum(command.startswith("sleep") for command in living(run)) < " ".join(commands).count("sleep 1000"):
        assert time.monotonic() < until
        time.sleep(0.02)
    return process


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_when_it_is_ended_itself_nothing_is_left(number: signal.Signals) -> None:
    run = new_nonce()
    process = start(run, "setsid sleep 1000 & sleep 1000")
    os.killpg(process.pid, number)
    assert is_soon_gone(run)
    process.wait()


@pytest.mark.long
def test_when_nobody_listens_any_more_nothing_is_left() -> None:
    run = new_nonce()
    process = start(run, "setsid sleep 1000 & sleep 1000")
    assert process.stdout
    process.stdout.close()
    assert is_soon_gone(run)
    process.wait()


@pytest.mark.long
def test_a_cleanup_ends_what_is_of_its_run_and_nothing_else() -> None:
    def sleeper(run: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "1000"], env={VARIABLE: run}, start_new_session=True)

    run = new_nonce()
    ours, others = sleeper(run), sleeper(run + "0")
    try:
        assert LOCAL.clean_up([HERE], [run])["here"].left == ()
        assert ours.wait(GONE_S) == -signal.SIGKILL
        assert others.poll() is None
    finally:
        others.kill()
        others.wait()
    assert clean_up(run) == []


def rendezvous(port: int, **more: object) -> dict[str, object]:
    return {"rendezvous_port": port, "port": port + 1, "timeout_s": 5.0, **more}


@pytest.mark.long
def test_a_server_that_nobody_comes_to_is_ended_and_says_so() -> None:
    run = new_nonce()
    answer = visited("sleep 1000", run=run, rendezvous={**rendezvous(free_port()), "timeout_s": 0.3})
    assert (answer.unmet, answer.outputs[0].exit) == ("the other node did not connect", None)
    assert living(run) == []


@pytest.mark.long
def test_a_client_that_finds_nobody_says_where_it_looked_and_starts_nothing() -> None:
    searches = {"servers": [["gpu001", ["127.0.0.1"]]], "stands_for_addresses": "ADDRESS", "timeout_s": 0.3}
    answer = visited("echo started", rendezvous=rendezvous(port := free_port(), **searches))
    assert answer.unmet == f"gpu001 cannot be reached on port {port} (127.0.0.1: Connection refused)"
    assert answer.outputs == ()


def test_the_first_address_is_the_way_in_though_the_other_listens_only_after_it_was_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, word, connect = free_port(), b"word", socket.create_connection
    listeners: list[socket.socket] = []

    def answer() -> None:
        other = Acceptor(listeners[0], word).accept(60.0)
        assert other
        other.sendall(READY)

    def connecting(address: tuple[str, int], timeout: float) -> socket.socket:
        if address[0] == "127.0.0.2" and not listeners:
            listeners.append(listen(port))
            threading.Thread(target=answer, daemon=True).start()
        return connect(address, timeout)

    monkeypatch.setattr(socket, "create_connection", connecting)
    other, address = find_server(["127.0.0.1", "127.0.0.2"], port, word, time.monotonic() + 60)
    other.close()
    listeners[0].close()
    assert address == "127.0.0.1"


def second_of_two() -> socket.socket:
    """A listening socket just above a free port, below the kernel's ephemeral ports."""
    for port in range(20_000, 30_000, 2):
        with suppress(OSError):
            socket.create_server(("", port)).close()
            return socket.create_server(("", port + 1))
    raise AssertionError("no two ports are free")


@pytest.mark.long
def test_a_port_that_is_taken_is_reported_before_anything_starts() -> None:
    with second_of_two() as taken:
        port = taken.getsockname()[1]
        answer = visited("echo started", rendezvous=rendezvous(port))
        assert answer.unmet == f"port {port} cannot be opened: Address already in use"
        answer = visited("echo started", rendezvous=rendezvous(port - 1))
        assert answer.unmet == f"port {port} is taken"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be another user")
def test_another_users_server_on_that_port_is_not_the_one_that_is_measured_with() -> None:
    """A user may take the port between the check that it is free and the server's opening of it."""
    meeting = {**rendezvous(port := free_port(), word="a word"), "timeout_s": 30.0}
    server = f"import socket, time; listening = socket.create_server(('', {port + 1})); time.sleep(1000)"
    threading.Thread(target=come, args=(port,), daemon=True).start()
    of_another = f"exec setpriv --reuid=65534 --clear-groups {sys.executable} -c {shlex.quote(server)}"
    answer = visited(of_another, rendezvous=meeting)
    assert answer.unmet == f"port {port + 1} is taken"


def come(port: int) -> None:
    """Act as the other end until the server's end exits."""
    with suppress(NotConnected):
        find_server(["127.0.0.1"], port, b"a word", time.monotonic() + 30)


@pytest.mark.long
@pytest.mark.parametrize("python", ["python3.8", "python3"])
def test_it_runs_on_python(python: str, tmp_path: Path) -> None:
    executable = interpreter(python)
    if executable is None:
        pytest.skip(f"no {python} here")
    (tmp_path / "python3").symlink_to(executable)
    answer = LOCAL.visit(HERE, request("echo $PATH"), 60.0)
    nonce = new_nonce()
    program = node_program(request("echo there"), nonce, on_stdin=False)
    done = subprocess.run(
        ["/bin/sh", "-c", program.command], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, stdout=-1, check=True
    )
    answer = visit.read(Answer(done.stdout), nonce)
    assert [output.text for output in answer.outputs] == ["there\n"]
