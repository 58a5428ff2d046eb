"""The meter of exchanges between RDMA devices: real fi_pingpong between two ends, and how its output is read."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.launchers.rendezvous import SECRET
from clusterproof.plugins.benchmarks.meters import MeterSettings, Output
from clusterproof.plugins.benchmarks.meters.rdma_mesh import client, read, server
from clusterproof.plugins.benchmarks.rdma.exchange import missing
from clusterproof.plugins.benchmarks.rdma.ports import INFINIBAND
from clusterproof.plugins.benchmarks.rdma.programs import IBV, PERFTEST
from clusterproof.plugins.evidence.exchanges import Exchange
from clusterproof.plugins.evidence.pairs import Failure, Reading
from tests.benchmarks.meters.ends import ended, start
from tests.benchmarks.rdma.nodes import efas, rdma_device, written
from tests.testbed.needs import needs_fi_pingpong
from tests.testbed.sysfs import Tree
from tests.transport.loopback import free_port

OVER_TCP = MeterSettings(options="-p tcp")


def both(roots: tuple[str, str], settings: MeterSettings = OVER_TCP) -> Reading:
    """The output of two real ends on this machine."""
    port = free_port()
    comes = start(client(settings, "127.0.0.1", port, roots[1]), **{SECRET: "word"})
    waits = start(server(settings, port, roots[0]), **{SECRET: "word"})
    return read(settings, (ended(comes), ended(waits)))


def both_have(rail: int, bus: int) -> Exchange:
    """An exchange that arrived between EFA devices at the same position."""
    place = f"0000:{bus:02x}:00.0/1"
    return Exchange(rail, f"rdmap{bus}s0", f"rdmap{bus}s0", places=(place, place))


@needs_fi_pingpong
def test_each_device_exchanges_bytes_with_that_of_its_rail(tmp_path: Path) -> None:
    root = written(tmp_path, efas(0x90, 0x4F, 0x60))
    assert both((root, root)).exchanges == (both_have(0, 0x4F), both_have(1, 0x60), both_have(2, 0x90))


@needs_fi_pingpong
def test_a_device_that_the_other_node_lacks_is_said_and_the_others_keep_their_rails(tmp_path: Path) -> None:
    roots = (written(tmp_path / "a", efas(0x4F, 0x60, 0x90)), written(tmp_path / "b", efas(0x4F, 0x90)))
    alone = Exchange(1, "rdmap96s0", "", places=("0000:60:00.0/1", ""))
    assert both(roots).exchanges == (both_have(0, 0x4F), alone, both_have(2, 0x90))


@needs_fi_pingpong
def test_what_fails_has_the_words_of_both_ends(tmp_path: Path) -> None:
    root = written(tmp_path, efas(0x4F))
    (failed,) = both((root, root), MeterSettings(options="-p nosuch")).exchanges
    assert not failed.has_arrived
    assert "it ended with 61; fi_getinfo(): util/pingpong.c" in failed.problem
    assert failed.problem.count(f"{os.uname().nodename}: it ended with ") == 2


# Connect to this many servers before their clients do.
INTRUDED = """#!{python}
import os, pathlib, socket, sys, time
words, seen = ["{own}", *sys.argv[1:]], pathlib.Path("{seen}")
port = words[words.index("-P") + 1] if "-P" in words else ""
if port and len(os.listdir(seen)) < {times} and not (seen / port).exists():
    (seen / port).touch()
    came = False
    for _ in range(600):  # until the server was there, and has gone
        try:
            socket.create_connection(("127.0.0.1", int(port)), 1).close()
            came = True
        except OSError:
            if came:
                break
        time.sleep(0.05)
os.execv(words[0], words)
"""


def intruded(folder: Path, times: int) -> MeterSettings:
    """Run fi_pingpong while another program connects first to this many of its servers."""
    seen, program = folder / "seen", folder / "fi_pingpong"
    seen.mkdir()
    own = shutil.which("fi_pingpong")
    program.write_text(INTRUDED.format(python=sys.executable, own=own, seen=seen, times=times))
    program.chmod(0o755)
    return MeterSettings(options="-p tcp", program=str(program))


@needs_fi_pingpong
def test_an_exchange_that_somebody_else_ended_is_made_again_with_a_new_server(tmp_path: Path) -> None:
    root = written(tmp_path, efas(0x4F))
    assert both((root, root), intruded(tmp_path, 1)).exchanges == (both_have(0, 0x4F),)


@needs_fi_pingpong
def test_one_that_somebody_ends_each_time_is_not_made_and_has_not_failed(tmp_path: Path) -> None:
    root = written(tmp_path, efas(0x4F))
    (ended_twice,) = both((root, root), intruded(tmp_path, 2)).exchanges
    assert (ended_twice.is_made, ended_twice.problem) == (False, "")
    assert ended_twice.apart


@pytest.mark.long
def test_an_end_that_does_not_know_the_secret_is_refused_and_the_other_waits_on(tmp_path: Path) -> None:
    root, port = written(tmp_path, efas(0x4F)), free_port()
    waits = start(server(OVER_TCP, port, root), **{SECRET: "word"})
    comes = ended(start(client(OVER_TCP, "127.0.0.1", port, root), **{SECRET: "another"}))
    assert waits.poll() is None
    waits.kill()
    reading = read(OVER_TCP, (comes, ended(waits)))
    assert (reading.exchanges, comes.exit) == ((), 1)
    assert "OSError" in comes.text


@pytest.mark.long
def test_a_port_that_is_down_is_not_tried_and_said(tmp_path: Path) -> None:
    down = written(tmp_path / "a", rdma_device("mlx5_0", 0x4F, state="1: DOWN", phys_state="2: Polling"))
    well = written(tmp_path / "b", rdma_device("mlx5_0", 0x4F))
    program = tmp_path / IBV
    program.write_text("#!/bin/false\n")
    program.chmod(0o755)
    (failed,) = both((down, well), MeterSettings(program=str(program))).exchanges
    assert failed.problem.endswith("mlx5_0 port 1 is 1: DOWN, 2: Polling")


OFF = rdma_device("mlx5_0", 0x4F, state="1: DOWN", phys_state="3: Disabled")


@pytest.mark.long
@pytest.mark.parametrize(
    ("tree", "settings", "problem"),
    [
        (OFF, OVER_TCP, "no RDMA device that is switched on and has an address"),
        (efas(0x4F), MeterSettings(program="/nowhere/fi_pingpong"), "fi_pingpong is not installed: looked on PATH"),
        (rdma_device("mlx5_0", 0x4F), MeterSettings(program="/bin/true"), "ibv_rc_pingpong or ib_send_lat is not inst"),
    ],
)
def test_without_a_device_or_a_program_nothing_is_exchanged_and_the_node_is_named(
    tmp_path: Path, tree: Tree, settings: MeterSettings, problem: str
) -> None:
    root = written(tmp_path, tree)
    reading = both((root, root), settings)
    assert (reading.exchanges, reading.has_succeeded) == ((), False)
    assert problem in reading.problem
    assert reading.culprit
    assert (reading.failure is Failure.NO_PROGRAM) == (tree != OFF)


@pytest.mark.long
def test_neither_of_two_nodes_without_rdma_hardware_is_blamed(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    reading = both((str(tmp_path), str(tmp_path)))
    assert (reading.failure, reading.culprit) == (Failure.NO_RDMA, "")


def test_programs_that_the_nodes_have_not_in_common_are_said_of_both() -> None:
    ports_of = {"has_devices": True, "ports": [{"fabric": INFINIBAND}]}
    own, theirs = ({"host": host, "programs": {name: "P"}, **ports_of} for host, name in (("a", PERFTEST), ("b", IBV)))
    message = (
        "clusterproof: a has ib_send_lat, b has ibv_rc_pingpong: no program in common; install the package ibverbs-"
    )
    lacking = missing(own, theirs)
    assert (lacking["error"].startswith(message), lacking.get("failure")) == (True, None)


ERROR = "Failed status transport retry counter exceeded (12) for wr_id 2"


def reported(row: Mapping[str, Any], exit_status: int | None = 0) -> Reading:
    document = {
        "hosts": ["host-a", "host-b"],
        "exchanges": [{"rail": 3, "a": "mlx5_3 port 1", "b": "mlx5_3 port 1", **row}],
    }
    return read(MeterSettings(), (Output("", 0), Output(f"a warning\n{json.dumps(document)}\n", exit_status)))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"arrived": True}, ""),
        ({"ends": [[0, ""], [1, f"{ERROR}\n"]]}, f"host-b: it ended with 1; {ERROR}"),
        ({"ends": [[None, ""], [1, f"{ERROR}\n"]]}, f"host-b: it ended with 1; {ERROR}"),
        ({"ends": [[None, "local address: LID 0x0000"], [1, f"{ERROR}\n"]]}, f"host-b: it ended with 1; {ERROR}"),
        ({"ends": [[1, f"{ERROR}\n"], [None, ""]]}, f"host-b: no answer in its time; host-a: it ended with 1; {ERROR}"),
        ({"ends": [[None, ""], [None, ""]]}, "host-b: no answer in its time; host-a: no answer in its time"),
        ({"arrived": False, "ends": [[0, ""], [0, ""]]}, "it printed nothing"),
        ({"why": "host-a: mlx5_3 port 1 is 1: DOWN"}, "host-a: mlx5_3 port 1 is 1: DOWN"),
        ({"b": ""}, ""),
    ],
)  # fmt: skip
def test_an_exchange_is_read_with_the_words_of_the_ends_that_failed(row: Mapping[str, Any], problem: str) -> None:
    (exchange,) = reported(row).exchanges
    assert (exchange.rail, exchange.a, exchange.problem) == (3, "mlx5_3 port 1", problem)


def test_an_exchange_whose_ends_did_not_meet_has_not_failed() -> None:
    refused = "failed to connect: Connection refused"
    (exchange,) = reported({"arrived": False, "apart": True, "ends": [[None, ""], [111, refused]]}).exchanges
    assert (exchange.is_made, exchange.problem) == (False, "")
    assert exchange.apart == f"host-b: it ended with 111; {refused}"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "a failed exchange does not say how it ended"),
        ({"arrived": 1}, "a failed exchange does not say how it ended"),
        ({"arrived": False, "ends": [[0, ""]]}, "a failed exchange does not say how it ended"),
        ({"arrived": False, "ends": [["0", ""], [0, ""]]}, "does not say how an end ended"),
        ({"arrived": True, "places": ["0000:4f:00.0/1"]}, "are not the places of two devices"),
        ({"arrived": True, "places": ["0000:4f:00.0/1", "x; rm -rf"]}, "are not the places of two devices"),
        ({"rail": -1}, "of rail -1"),
        ({"rail": True}, "of rail True"),
        ({"a": "x; rm -rf"}, "expected RDMA devices"),
        ({"a": "", "b": ""}, "expected RDMA devices"),
        ({"a": "e" * 70}, "expected RDMA devices"),
    ],
)
def test_what_is_no_exchange_is_a_problem_of_the_pair(row: Mapping[str, Any], message: str) -> None:
    reading = reported(row)
    assert reading.exchanges == ()
    assert message in reading.problem


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ((), "it did not end in its time"),
        ((Output("", 0), Output("", None)), "it did not end in its time"),
        ((Output("OSError: it does not know the secret", 1), Output("", 0)), "it ended with 1; OSError: it does not"),
        ((Output("", 0), Output('{"exchanges": []}', 0)), "it reports no list of exchanges; expected 1 to 128"),
        ((Output("", 0), Output("{" * 5000, 0)), "it printed nothing"),
    ],
)
def test_ends_that_report_nothing_have_exchanged_nothing(outputs: tuple[Output, ...], message: str) -> None:
    reading = read(MeterSettings(), outputs)
    assert (reading.exchanges, reading.has_succeeded) == ((), False)
    assert message in reading.problem
