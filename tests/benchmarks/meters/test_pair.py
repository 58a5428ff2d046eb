"""The two-ended meters, mainly iperf3: on sample output and over this machine's loopback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from clusterproof.plugins.benchmarks.meters import MeterSettings, Output, fi_pingpong, iperf3
from clusterproof.plugins.benchmarks.meters.printed import proven_network
from clusterproof.plugins.benchmarks.meters.selection import METERS
from clusterproof.plugins.evidence.pairs import Failure, Reading
from tests.benchmarks.meters.ends import GB, connected, ended, measured, start
from tests.testbed.needs import needs_iperf3
from tests.transport.loopback import free_port

ESTABLISHED = "01"  # in /proc/net/tcp


def report(direction: int, received: Any, seconds: Any = 4.0) -> dict[str, Any]:
    """A report of `iperf3 -c -J` with the fields that are read."""
    return {
        "start": {"test_start": {"protocol": "TCP", "num_streams": 8, "blksize": 131072, "reverse": direction}},
        "intervals": [],
        "end": {"sum_received": {"bytes": received, "seconds": seconds, "bits_per_second": 1}},
    }


def printed(*reports: Any) -> str:
    return "".join(json.dumps(each, indent=1) + "\n" for each in reports)


def iperf(
    text: str, end: int | None = 0, server: Output | None = None, sent: Mapping[str, int] | None = None
) -> Reading:
    ours = Output(text, end, sent or {})
    return iperf3.read(MeterSettings(), (ours, server) if server else (ours,))


@pytest.mark.parametrize(("there", "back"), [(40 * GB, 20 * GB), (20 * GB, 40 * GB)])
def test_the_bandwidth_of_iperf3_is_the_slower_directions_in_10_9_bytes_a_second(there: int, back: int) -> None:
    read = iperf(printed(report(0, there), report(1, back)))
    assert (read.busbw_gb_per_s, read.algbw_gb_per_s, read.size_bytes) == (5.0, 5.0, 131072)
    assert (read.problem, read.is_correct, read.network) == ("", None, "")


@pytest.mark.parametrize("noise", ["warning: this version is old\n", "iperf3: interrupt { odd\n"])
def test_lines_before_the_reports_are_passed_over(noise: str) -> None:
    assert iperf(noise + printed(report(0, 4 * GB), report(1, 4 * GB))).busbw_gb_per_s == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (printed({"error": "unable to connect to server: Connection refused"}), "to the server: unable to connect"),
        (
            printed({"error": "the server is busy running a test. try again later"}),
            "to the server: the server is busy running a test",
        ),
        (
            printed(report(0, 4 * GB), {"error": "control socket has closed unexpectedly"}),
            "from the server: control socket has closed",
        ),
        (printed({"error": ["odd"]}), "to the server: error"),
        (printed(report(0, 4 * GB)), "from the server: no whole report of iperf3: it ended before"),
        (printed(report(0, 4 * GB), report(1, 4 * GB))[:-30], "from the server: no whole report of iperf3"),
        (printed(report(0, 4 * GB), report(0, 4 * GB)), "from the server: 'TCP', reverse 0; expected a run of TCP"),
        (printed(report(0, 0), report(1, 4 * GB)), "to the server: 0 GB/s; expected more than 0"),
        (
            printed(report(0, -4 * GB), report(1, 4 * GB)),
            "to the server: bytes is -4000000000; expected a whole number",
        ),
        (printed(report(0, 1.5), report(1, 4 * GB)), "to the server: bytes is 1.5; expected a whole number"),
        (printed(report(0, True), report(1, 4 * GB)), "to the server: bytes is True; expected a whole number"),
        (printed(report(0, 10**30), report(1, 4 * GB)), "to the server: bytes is 1000000000000000000000000000000;"),
        (
            printed(report(0, 4 * GB, 0), report(1, 4 * GB)),
            "to the server: it took 0 seconds; expected a number above 0",
        ),
        (printed(report(0, 4 * GB, "4"), report(1, 4 * GB)), "to the server: it took '4' seconds"),
        (printed(report(0, 4 * GB, True), report(1, 4 * GB)), "to the server: it took True seconds"),
        (printed(report(0, 4 * GB, 10**400), report(1, 4 * GB)), "to the server: it took 1000000"),
        (printed(report(0, 2**62, 1e-5), report(1, 4 * GB)), "to the server: 4.61169e+14 GB/s"),
        (printed(report(0, 4 * GB, float("nan")), report(1, 4 * GB)), "to the server: no whole report of iperf3"),
        (printed(report(0, 4 * GB, float("inf")), report(1, 4 * GB)), "to the server: no whole report of iperf3"),
        (printed({"start": [], "end": {}}, {}), "its report has no start.test_start"),
        ('{"a": ' * 100_000, "to the server: no whole report of iperf3"),
        ('{"bytes": ' + "9" * 10_000 + "}", "to the server: no whole report of iperf3"),
        ("iperf3: error - unable to create a new stream\n", "to the server: no whole report of iperf3: iperf3: error"),
    ],
)
def test_what_is_no_whole_run_of_iperf3_is_a_problem(text: str, message: str) -> None:
    read = iperf(text)
    assert read.busbw_gb_per_s is None
    assert read.problem.startswith(message)
    assert read.problem.isprintable()


def test_what_failed_at_the_server_is_reported_with_it() -> None:
    server = Output(
        "clusterproof-no-program: gpu007: iperf3 is not installed: looked on PATH; install the package iperf3", 127
    )
    read = iperf(printed({"error": "unable to connect to server: Connection refused"}), 1, server)
    assert "the server: it ended with 127; clusterproof: gpu007: iperf3 is not installed" in read.problem
    assert (read.culprit, read.failure) == ("gpu007", Failure.NO_PROGRAM)


@pytest.mark.parametrize(
    ("ours", "theirs", "network"),
    [
        ({"net:eth0": 5 * GB, "net:lo": 3}, {"net:eth0": 5 * GB}, "eth0"),
        ({"net:eth0": 5 * GB}, {"net:ens5": 5 * GB}, "eth0 and ens5"),
        ({"net:eth0": 5 * GB}, {}, "eth0"),
        ({"net:eth0": 5 * GB}, {"net:eth0": 3 * GB}, ""),
        ({"net:eth0": 3 * GB}, {"net:eth0": 5 * GB}, ""),
        ({"net:eth0": 2 * GB, "net:eth1": 2 * GB + 1}, {}, "eth0, eth1"),
        ({}, {}, ""),
    ],
)
def test_the_counters_name_the_device_only_where_they_account_for_the_bytes(
    ours: dict[str, int], theirs: dict[str, int], network: str
) -> None:
    text = printed(report(0, 4 * GB), report(1, 4 * GB))
    assert iperf(text, server=Output("", 0, theirs), sent=ours).network == network


@pytest.mark.parametrize(
    ("sent", "carried", "network"),
    [
        ({"efa:a": 10, "efa:b": 10, "net:eth0": 1}, 20, "efa, 2 devices"),
        ({"efa:a": 20}, 20, "efa, 1 device"),
        ({"efa:a": 20, "efa:idle": 1}, 20, "efa, 1 device"),
        ({"efa:a": 10, "net:eth0": 30}, 20, "eth0"),
        ({"eth0": 30}, 20, "eth0"),
        ({"net:eth0": 30}, 0, ""),
        ({"net:eth0": 0}, 20, ""),
        ({"net:eth0": -5}, 20, ""),
    ],
)
def test_a_network_is_proven_by_the_devices_that_sent_most(sent: dict[str, int], carried: int, network: str) -> None:
    assert proven_network(sent, carried) == network


@needs_iperf3
def test_iperf3_measures_both_directions_over_loopback_and_its_server_ends() -> None:
    read, outputs = measured(METERS["iperf3"], MeterSettings(options="-t 1 -P 1"))
    assert read.problem == ""
    assert read.busbw_gb_per_s is not None
    there, back = iperf3.directions(outputs[0].text)
    assert read.busbw_gb_per_s == min(there.gb_per_s, back.gb_per_s) > 0
    assert [output.exit for output in outputs] == [0, 0]


@needs_iperf3
def test_an_iperf3_client_that_still_meets_the_server_of_before_tries_again() -> None:
    port, settings = free_port(), MeterSettings(options="-t 1 -P 1")
    with socket.create_server(("127.0.0.1", port)) as going:
        client = start(iperf3.client(settings, "127.0.0.1", port))
        connection, _ = going.accept()
        connection.recv(37)  # its cookie
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()  # with a reset
    server = start(iperf3.server(settings, port))
    outputs = (ended(client), ended(server))
    assert METERS["iperf3"].read(settings, outputs).problem == ""


@needs_iperf3
@pytest.mark.parametrize("direction", [0, 1])
def test_an_iperf3_server_that_dies_in_mid_run_is_a_problem_and_not_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direction: int
) -> None:
    monkeypatch.setattr("clusterproof.plugins.benchmarks.meters.TRIES", 10)
    port, pids, program = free_port(), tmp_path / "pids", tmp_path / "server"
    program.write_text(f'#!/bin/sh\necho $$ >>{pids}\nexec iperf3 "$@"\n')
    program.chmod(0o755)
    server = start(iperf3.server(MeterSettings(program=str(program)), port))
    client = start(iperf3.client(MeterSettings(options="-t 2 -P 1"), "127.0.0.1", port))
    for _ in range(600):
        begun = pids.read_text().split() if pids.exists() else []
        if len(begun) > direction and connections_to(port) > 1:  # the control connection and a stream
            os.kill(int(begun[direction]), signal.SIGKILL)
            break
        time.sleep(0.02)
    output = ended(client)
    while server.poll() is None:  # the reverse one may still wait for a client
        for pid in pids.read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)
    read = METERS["iperf3"].read(MeterSettings(), (output, ended(server)))
    assert read.busbw_gb_per_s is None
    assert read.problem.startswith(("to the server: ", "from the server: "))


def connections_to(port: int) -> int:
    """How many connections this machine's servers have on that port."""
    tables = [Path(name).read_text().splitlines()[1:] for name in ("/proc/net/tcp", "/proc/net/tcp6")]
    rows = [line.split() for table in tables for line in table]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == ESTABLISHED for row in rows)


@needs_iperf3
def test_an_iperf3_server_that_has_another_client_is_a_problem_and_not_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clusterproof.plugins.benchmarks.meters.TRIES", 1)
    with socket.create_server(("127.0.0.1", 0)) as busy:
        client = start(iperf3.client(MeterSettings(), "127.0.0.1", busy.getsockname()[1]))
        connection, _ = busy.accept()
        with connection:
            connection.recv(37)  # its cookie
            connection.sendall(b"\xff")  # iperf3's ACCESS_DENIED
            output = ended(client)
    read = iperf(output.text, output.exit)
    assert (read.busbw_gb_per_s, output.exit) == (None, 1)
    assert read.problem.startswith("to the server: the server is busy running a test")
    assert read.failure is Failure.NOT_AT_FAULT


@needs_iperf3
def test_a_user_who_comes_first_at_a_servers_port_is_no_evidence_against_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clusterproof.plugins.benchmarks.meters.TRIES", 1)
    port = free_port()
    with start(iperf3.server(MeterSettings(), port)) as server:
        while not connected(port):
            time.sleep(0.05)
        client = ended(start(iperf3.client(MeterSettings(), "127.0.0.1", port)))
        while server.poll() is None:
            connected(port)
        read = iperf3.read(MeterSettings(), (client, ended(server)))
    assert "Connection refused" in read.problem
    assert (read.culprit, read.failure) == ("", Failure.NOT_AT_FAULT)


@pytest.mark.parametrize(
    ("server", "failure"),
    [(Output("", 0), Failure.NOT_AT_FAULT), (Output("", None), Failure.NOT_AT_FAULT), (Output("", 139), None)],
)
def test_a_server_that_dies_is_held_against_its_node_though_its_client_is_refused(
    server: Output, failure: Failure | None
) -> None:
    refused = printed({"error": "unable to connect to server: Connection refused"})
    assert iperf(refused, 1, server).failure is failure


@pytest.mark.long
@pytest.mark.parametrize("name", ["iperf3", "fi_pingpong"])
def test_a_server_that_never_listens_is_a_problem(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("clusterproof.plugins.benchmarks.meters.TRIES", 2)
    refusing = tmp_path / name
    refusing.write_text('#!/bin/sh\necho \'{"error": "unable to connect to server: Connection refused"}\'\nexit 111\n')
    refusing.chmod(0o755)
    client = METERS[name].client
    assert client
    output = ended(start(client(MeterSettings(program=str(refusing)), "127.0.0.1", 1)))
    assert output.text.count("Connection refused") == 1  # the last attempt's
    read = METERS[name].read(MeterSettings(), (output,))
    assert read.busbw_gb_per_s is None
    assert "Connection refused" in read.problem


@pytest.mark.long
@pytest.mark.parametrize("name", ["iperf3", "fi_pingpong"])
def test_a_program_that_is_not_there_is_named_with_its_package(name: str, tmp_path: Path) -> None:
    meter = METERS[name]
    assert meter.server
    assert meter.client
    for script in (meter.server(MeterSettings(), 5000), meter.client(MeterSettings(), "127.0.0.1", 5000)):
        output = ended(start(script.replace("/opt/amazon", str(tmp_path)), PATH=str(only_uname(tmp_path))))
        read = meter.read(MeterSettings(), (output,))
        assert output.exit == 127
        assert f"{name} is not installed: looked on PATH" in read.problem
        assert (read.culprit, read.failure) == (os.uname().nodename, Failure.NO_PROGRAM)


def only_uname(folder: Path) -> Path:
    """A folder for PATH with no program but uname."""
    (folder / "uname").unlink(missing_ok=True)
    (folder / "uname").symlink_to("/bin/uname")
    return folder


@pytest.mark.parametrize("client", [iperf3.client, fi_pingpong.client])
def test_an_address_is_one_word(client: Any) -> None:
    assert " '10.0.0.1; reboot'" in client(MeterSettings(), "10.0.0.1; reboot", 5000)
